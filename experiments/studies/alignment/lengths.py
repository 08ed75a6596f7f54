"""How long and at which rate must an alignment train? By the error on held-out words, on development seeds.

    python experiments/studies/alignment/lengths.py --out runs/alignment-lengths \\
        --source runs/plain-dev3 masked-lm-on-plain-bert/seed-100 \\
        --targets runs/plain-dev3-tr translation-on-plain-bert/seed-101 translation-on-plain-bert/seed-102

Aligns one masked LM to each translation encoder with every setting of `SETTINGS`, compares on 1,000 sentences of the
validation part, beside the best linear map of the unaligned masked LM, and writes `lengths.csv` beside this file.
Interrupted, the same command continues. The models are those of experiments/studies/plain-head.
"""

import argparse
from pathlib import Path

import pandas as pd
from align_minilm import METRICS, of_study

from infoflow.alignment import (
    ExplicitConfig,
    IdentityLinks,
    LinkedSentences,
    align_explicit,
    evaluate_alignment,
    linearly_aligned,
)
from infoflow.corpus import Corpus
from infoflow.foundation import make_display, set_threads, use_display
from infoflow.models import Model
from infoflow.studies import at_most

SEED = 100
BATCH = 32  # sentences, as in a study
SETTINGS = [  # sentences, epochs, learning rate
    (4000, 1, 1e-3), (4000, 1, 3e-3), (4000, 4, 3e-3), (16000, 1, 1e-3), (16000, 1, 3e-3), (16000, 1, 1e-2),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", nargs=2, metavar=("STUDY", "MODEL"), required=True)
    parser.add_argument("--targets", nargs="+", metavar="STUDY MODEL ...", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/alignment-lengths"))
    parser.add_argument("--held-out", type=int, default=1000, help="sentences to compare on")
    options = parser.parse_args()
    set_threads(1)
    study, *names = options.targets
    source, data = of_study(Path(options.source[0]), options.source[1])
    held_out = at_most(data.validation, options.held_out)
    with use_display(make_display("plain")):
        tables = [
            _compared(source, of_study(Path(study), name)[0], data.train, held_out, options.out) for name in names
        ]
    table = pd.concat(tables).astype({"sentences": "Int64", "epochs": "Int64"})
    table.to_csv(Path(__file__).with_name("lengths.csv"), index=False, float_format="%.4g")
    print(table.to_string(index=False))


def _compared(source: Model, target: Model, train: Corpus, held_out: Corpus, out: Path) -> pd.DataFrame:
    """A row for the best linear map and for each setting."""
    config = ExplicitConfig(batch_sentences=BATCH, seed=SEED)
    linked = LinkedSentences(source, target, at_most(train, 4000), IdentityLinks(), max_length=config.max_length)
    linear = linearly_aligned(source, target, linked, config)
    found = evaluate_alignment({"unaligned": linear}, source, target, held_out)
    rows = [{"target": target.name, "alignment": "best linear map", **_scores(found, "unaligned")}]
    for sentences, epochs, rate in SETTINGS:
        config = ExplicitConfig(batch_sentences=BATCH, seed=SEED, epochs=epochs, learning_rate=rate)
        folder = out / target.name.replace("/", "-") / f"{sentences}-{epochs}-{rate:g}"
        aligned = align_explicit(source, target, at_most(train, sentences), folder, config=config)
        found = evaluate_alignment({"aligned": aligned}, source, target, held_out)
        facts = {"sentences": sentences, "epochs": epochs, "learning_rate": rate}
        rows.append({"target": target.name, "alignment": "explicit", **facts, **_scores(found, "aligned")})
    return pd.DataFrame(rows)


def _scores(found: pd.DataFrame, kind: str) -> dict[str, float]:
    kept = found[(found["kind"] == kind) & (found["metric"].map(METRICS) == found["states"])]
    return dict(zip(kept["metric"], kept["value"], strict=True))


if __name__ == "__main__":
    main()
