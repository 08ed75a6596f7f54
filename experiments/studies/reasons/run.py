"""What brings a failing claim back? One thing changed at a time, all else as in a cell of experiments/studies/scale.

    python experiments/studies/reasons/run.py --out runs/reasons --processes 2
    python experiments/studies/reasons/run.py --out runs/reasons --only --also none=runs/scale/w64-3M    # collect alone

| arm | what is changed |
|---|---|
| norms | no LayerNorm has a gain or a bias (both stay at 1 and 0) |
| untied | the masked LM's output matrix is not its table of token embeddings |
| vocabulary | 16,000 subwords, of which many are rare, in place of 4,000 |
| small | 20,000 training pairs for translation, read over and over, in place of all |
| together | the causes that were found, all at once: norms, fixed sinusoids, 1,000 clusters of states |

Each arm is a study in a folder of its own under `--out`, with the plan beside this file but for its change;
interrupted, the same command continues. Under `--results`, of the arms and of the studies that `--also` names: verdicts
of the claims (`findings.csv`), tasks' losses and BLEU (`scores.csv`), distances of two objectives with the same seed
(`distances.csv`), and of those that are asked about it what depends on frequency (`by_frequency.csv`). Rows of arms
whose folders are gone stay there.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from infoflow.cli import with_settings
from infoflow.foundation import make_display, set_threads, use_display
from infoflow.results import RunFolder
from infoflow.studies import Run, StudyPlan, study

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import put

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
    "small": [
        "corpus.sentences=20000",
        "seeds=[0, 2]",
        'objectives=["translation"]',
        "analysis.untrained=false",
        'analysis.tables=["task_scores", "influence_by_frequency"]',
    ],
    "together": ["model.elementwise_affine=false", "model.sinusoidal_positions=0.2", "analysis.clusters=1000"],
}
FREQUENCY = ("none", "vocabulary", "small")
BY_FREQUENCY = ["arm", "objective", "seed", "measure", "pool", "layer", "rank_low", "rank_high", "value"]
SCORES = ["arm", "objective", "seed", "metric", "value", "low", "high", "baseline"]
DISTANCES = ["arm", "objective_a", "objective_b", "seed_a", "seed_b", "layer", "value", "low", "high"]
Tables = Mapping[str, pd.DataFrame]
COLUMNS = ["arm", "id", "verdict", "effect", "low", "high", "threshold", "unit", "seeds", "note"]


def main() -> None:
    arguments = _arguments()
    if unknown := set(arguments.only or ()) - set(ARMS):
        raise SystemExit(f"--only takes {', '.join(ARMS)}. Got {', '.join(sorted(unknown))}.")
    set_threads(1)
    base = StudyPlan.load(HERE / "plan.toml")
    with use_display(make_display("plain")):
        for arm in ARMS if arguments.only is None else arguments.only:
            study(with_settings(base, [*ARMS[arm], *arguments.set]), arguments.out / arm, arguments.processes)
    also = {name: Path(folder) for name, _, folder in (each.partition("=") for each in arguments.also)}
    folders = {arm: arguments.out / arm for arm in ARMS} | also
    done = {arm: Run.open(folder).tables for arm, folder in folders.items() if _is_done(folder)}
    tables = {
        "findings": _of_arms(done, _verdicts, COLUMNS),
        "scores": _of_arms(done, _scores, SCORES),
        "distances": _of_arms(done, _distances, DISTANCES),
        "by_frequency": _of_arms({arm: done[arm] for arm in FREQUENCY if arm in done}, _by_frequency, BY_FREQUENCY),
    }
    for name, table in tables.items():
        if len(table):
            put(table, arguments.results / f"{name}.csv", ("arm",))


def _is_done(folder: Path) -> bool:
    return "findings" in RunFolder(folder).tables


def _of_arms(
    done: Mapping[str, Tables], read: Callable[[Tables], list[pd.DataFrame]], columns: list[str]
) -> pd.DataFrame:
    rows = [rows.assign(arm=arm)[columns] for arm, tables in done.items() for rows in read(tables)]
    return pd.concat(rows) if rows else pd.DataFrame(columns=columns)


def _verdicts(tables: Tables) -> list[pd.DataFrame]:
    found = tables["findings"]
    return [found[found["id"].str.startswith("representations:") & (found["verdict"] != "not testable here")]]


def _scores(tables: Tables) -> list[pd.DataFrame]:
    """On the test part."""
    return [scores[scores["split"] == "test"] for scores in _of_trained(tables, "task_scores")]


def _distances(tables: Tables) -> list[pd.DataFrame]:
    """1 − PWCCA between the models of two objectives and one seed, at the same layer."""
    found = _of_trained(tables, "model_distance")
    return [rows[(rows["seed_a"] == rows["seed_b"]) & (rows["objective_a"] != rows["objective_b"])] for rows in found]


def _by_frequency(tables: Tables) -> list[pd.DataFrame]:
    """How much tokens of each range of frequency ranks are changed and influence others, in each trained model."""
    return [
        rows.rename(columns={"block": "layer"}).assign(measure=measure)
        for measure in ("change", "influence")
        for rows in _of_trained(tables, f"{measure}_by_frequency")
    ]


def _of_trained(tables: Tables, name: str) -> list[pd.DataFrame]:
    """One table, or none where the study has not measured it."""
    return [tables[name][tables[name]["trained"]]] if name in tables else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", metavar="ARM", help="none: collect what is done")
    parser.add_argument("--also", nargs="+", default=[], metavar="NAME=RUN", help="studies to collect beside the arms")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--results", type=Path, default=HERE)
    return parser.parse_args()


if __name__ == "__main__":
    main()
