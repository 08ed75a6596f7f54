"""What brings a failing claim back? One thing changed at a time, everything else as in a cell of experiments/scale.

    python experiments/reasons/run.py --out runs/reasons --processes 2
    python experiments/reasons/run.py --out runs/reasons --only vocabulary

| arm | what is changed |
|---|---|
| norms | no LayerNorm has a gain or a bias (both stay at 1 and 0) |
| untied | the masked LM's output matrix is not its table of token embeddings |
| vocabulary | 16,000 subwords, of which many are rare, in place of 4,000 |
| small | 20,000 training pairs for translation, read over and over, in place of all |

Each arm is a study in a folder of its own under `--out`, with the plan beside this file but for its change;
interrupted, the same command continues. Verdicts of the claims, with those of `--base` (the cell without a change), go
to `--results`.
"""

import argparse
from pathlib import Path

import pandas as pd

from infoflow.cli import with_settings
from infoflow.foundation import atomic_write, make_display, set_threads, use_display
from infoflow.results import RunFolder
from infoflow.studies import Run, StudyPlan, study

HERE = Path(__file__).parent
ARMS: dict[str, list[str]] = {
    "norms": ["model.elementwise_affine=false"],
    "untied": ["model.tie_word_embeddings=false", 'objectives=["masked-lm"]'],
    "vocabulary": [
        "corpus.vocabulary=16000",
        "seeds=[0, 2]",  # the base's translation model of seed 1 does not begin to read its source
        "analysis.untrained=false",
        'analysis.tables=["task_scores", "change_by_frequency", "influence_by_frequency"]',
    ],
    "small": ["corpus.sentences=20000", 'objectives=["translation"]'],
}
COLUMNS = ["arm", "id", "verdict", "effect", "low", "high", "threshold", "unit", "seeds", "note"]


def main() -> None:
    arguments = _arguments()
    set_threads(1)
    base = StudyPlan.load(HERE / "plan.toml")
    with use_display(make_display("plain")):
        for arm in arguments.only or ARMS:
            study(with_settings(base, [*ARMS[arm], *arguments.set]), arguments.out / arm, arguments.processes)
    folders = {"none": arguments.base, **{arm: arguments.out / arm for arm in ARMS}}
    found = pd.concat(_verdicts(arm, folder) for arm, folder in folders.items() if _is_done(folder))
    with atomic_write(arguments.results / "findings.csv") as temporary:
        found.to_csv(temporary, index=False, float_format="%.4g")


def _is_done(folder: Path | None) -> bool:
    return folder is not None and "findings" in RunFolder(folder).tables


def _verdicts(arm: str, folder: Path) -> pd.DataFrame:
    found = Run.open(folder).tables["findings"]
    kept = found["id"].str.startswith("representations:") & (found["verdict"] != "not testable here")
    return found[kept].assign(arm=arm)[COLUMNS]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=ARMS)
    parser.add_argument("--base", type=Path, metavar="RUN", help="the study without a change: runs/scale/w64-3M")
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--results", type=Path, default=HERE)
    return parser.parse_args()


if __name__ == "__main__":
    main()
