"""What bfloat16, float16 and 8 bits change in each measure, in units of its interval's half-width.

    infoflow study quick --out runs/quick
    python experiments/validation/precision/run.py causal-lm=runs/quick/models/causal-lm/seed-0 minilm=all-MiniLM-L6-v2

8 bits need the extra `torchao`. A model and precision that `--work` already holds is not measured again. Writes
precision.csv and prints the table of docs/background/size.md.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import infoflow
from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import UserError, make_display, use_display
from infoflow.heads import (
    Ablation,
    Confidence,
    Entropy,
    Importance,
    PatternScores,
    PositionalScores,
    RareTokenScores,
    SpecialGradient,
    SurfaceStatistics,
)
from infoflow.lenses import Lens
from infoflow.representations import (
    IntraSentence,
    IntrinsicDimension,
    LayerDistance,
    MutualInformation,
    UsableInformation,
    WordGeometry,
)

HERE = Path(__file__).parent
PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": torch.float32},
    "bfloat16": {"dtype": torch.bfloat16},
    "float16": {"dtype": torch.float16},
    "int8": {"quantize": "int8"},
}
ESTIMATES = ("value", "low", "high")


def measures() -> list[AbstractMeasure]:
    """States, attention weights, losses and gradients, sized for some hundred sentences."""
    return [
        *(IntraSentence(), WordGeometry(), IntrinsicDimension(), LayerDistance(occurrences=2000)),
        UsableInformation(types=50, occurrences=2000),
        MutualInformation(types=50, occurrences=5000, clusters=50, clusterings=1),
        *(Confidence(), Entropy(), PositionalScores(), SurfaceStatistics(), RareTokenScores(), PatternScores()),
        *(Importance(), SpecialGradient(sentences=100), Ablation(sentences=30)),
        Lens(steps=50),
    ]


def measured(folder: str, precision: str, corpus: Corpus, work: Path) -> dict[str, pd.DataFrame]:
    """The tables of a model in one precision, by the class and name of the table; kept in `work`."""
    found: dict[str, pd.DataFrame] = {}
    model = None
    for measure in measures():
        name = f"{type(measure).__name__}.{measure.name}"
        path = work / precision / f"{name}.parquet"
        if not path.exists():
            model = model or infoflow.load_model(folder, device="cpu", **PRECISIONS[precision])
            before = time.process_time()
            try:
                frame = infoflow.measure(model, corpus, [measure])[measure.name]
            except UserError as error:
                print(f"{name}: {error}")
                frame = pd.DataFrame()
            path.parent.mkdir(parents=True, exist_ok=True)
            frame.drop(columns="replicates", errors="ignore").to_parquet(path)
            print(f"{precision} {name}: {time.process_time() - before:.1f} CPU seconds", flush=True)
        found[name] = pd.read_parquet(path)
    return found


def changes(exact: pd.DataFrame, rough: pd.DataFrame) -> dict[str, float] | None:
    """Differences of the values over the half-widths of the exact table's intervals."""
    if exact.empty or len(exact) != len(rough) or not set(ESTIMATES) <= set(exact):
        return None
    half = (exact["high"] - exact["low"]).to_numpy() / 2
    moved = np.abs(rough["value"].to_numpy() - exact["value"].to_numpy())
    known = np.isfinite(half) & np.isfinite(moved) & (half > 0)
    shares = moved[known] / half[known]
    if not known.any():
        return None
    return {
        "numbers": int(known.sum()),
        "median": float(np.median(shares)),
        "largest": float(shares.max()),
        "outside": float((shares > 1).mean()),
        "largest_difference": float(moved[known].max()),
    }


def rows(name: str, folder: str, precisions: Sequence[str], corpus: Corpus, work: Path) -> list[dict[str, Any]]:
    exact = measured(folder, "float32", corpus, work / name)
    found = []
    for precision in precisions:
        rough = measured(folder, precision, corpus, work / name)
        for table, frame in exact.items():
            if (numbers := changes(frame, rough[table])) is not None:
                measure, _, of = table.partition(".")
                found.append({"model": name, "precision": precision, "measure": measure, "table": of, **numbers})
    return found


def shown(frame: pd.DataFrame) -> str:
    """The table of the documentation: median and largest change over all numbers, in half-widths."""
    precisions = [one for one in PRECISIONS if one in set(frame["precision"])]
    lines = ["| measure | model | " + " | ".join(precisions) + " |", "|---|---|" + "---|" * len(precisions)]
    for (measure, model), part in frame.groupby(["measure", "model"], sort=False):
        by = {row["precision"]: f"{row['median']:.2g} ({row['largest']:.2g})" for row in part.to_dict("records")}
        lines.append(f"| {measure} | {model} | " + " | ".join(by.get(one, "–") for one in precisions) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--corpus", default="tatoeba-en-fr")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--precisions", default="bfloat16,int8")
    parser.add_argument("--work", type=Path, default=Path("runs/precision"))
    parser.add_argument("--to", type=Path, default=HERE / "precision.csv")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    corpus = infoflow.load_corpus(options.corpus)
    corpus = corpus.select(np.linspace(0, len(corpus) - 1, options.sentences).astype(int))
    with use_display(make_display("silent")):
        found = [
            row
            for one in options.models
            for row in rows(*one.split("=", 1), options.precisions.split(","), corpus, options.work)
        ]
    frame = pd.DataFrame(found)
    frame.to_csv(options.to, index=False, float_format="%.3g")
    print(shown(frame))


if __name__ == "__main__":
    main()
