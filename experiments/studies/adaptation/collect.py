"""Tables and verdicts of a study with [[tune]], small enough to commit: CSV files without replicates.

    infoflow study adaptation --out runs/adaptation
    python experiments/studies/adaptation/collect.py runs/adaptation --to experiments/studies/adaptation/objectives
    python experiments/studies/adaptation/collect.py runs/domain --to experiments/studies/adaptation/domain

| file | holds |
|---|---|
| `findings.csv` | verdict and effect of each claim of the room |
| `pretraining.csv` | loss of each model on the test part, the guess beside it, seconds of its training |
| `scores.csv` | main metric on test by objective, task, strategy, method, labelled examples and control |
| `domain_loss.csv` | loss per word of general and domain text, by strategy |
| `leakage.csv` | test texts that stand in what was trained on |
| `figures` | those of the report's section |

Values are means over seeds of pretraining (seeds of tuning averaged), with 95% intervals over seeds and examples. It
prints a table of README.md.
"""

import sys
from pathlib import Path

import pandas as pd

from infoflow.studies import Run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from collecting import asked, averaged, claims, copy_figures, over_seeds, short, write  # noqa: E402

MODEL = ["objective", "variant", "trained"]
WAY = ["task", "strategy", "method", "examples", "control"]
METRIC = ["metric"]
FIGURES = (
    "tuned-",
    "tuning-",
    "label-by-layer",
    "information-",
    "probes-after-tuning",
    "layer-swaps",
    "single-blocks",
    "head-overlap",
)
SHARES = ("accuracy", "macro_f1", "f1", "entity_f1", "exact_match", "rouge1", "rouge2", "rougeL", "bleu", "chrf")


def main() -> None:
    run, to = asked(__doc__)
    found = scores(run)
    write(found, to / "scores.csv")
    write(pretraining(run), to / "pretraining.csv")
    if "domain_loss" in run.tables:
        keys = ["strategy", "text"]
        losses = averaged(pd.DataFrame(run.tables["domain_loss"]), [*MODEL, "seed", *keys])
        write(over_seeds(losses, [*MODEL, *keys]), to / "domain_loss.csv")
    if "task_leakage" in run.tables:
        write(pd.DataFrame(run.tables["task_leakage"]), to / "leakage.csv")
    write(claims(run, "adaptation"), to / "findings.csv")
    copy_figures(run, FIGURES, to / "figures")
    print(by_task(found))


def scores(run: Run) -> pd.DataFrame:
    """The main metric of each task on its test part."""
    rows = pd.DataFrame(run.tables["tuned_scores"])
    rows = rows[rows["main"].astype(bool) & (rows["part"].astype(str) == "test")]
    by = [*MODEL, *WAY, *METRIC]
    return over_seeds(averaged(rows, ["seed", *by]), by, SHARES)


def pretraining(run: Run) -> pd.DataFrame:
    """Loss on the test part by objective and seed, with what training took."""
    rows = pd.DataFrame(run.tables["task_scores"])
    rows = rows[rows["trained"].astype(bool) & (rows["split"] == "test") & (rows["metric"] == "loss")]
    cost = pd.DataFrame(run.tables["training_runs"])[["model", "updates", "cpu_seconds"]]
    columns = ["objective", "variant", "seed", "value", "low", "high", "baseline", "updates", "cpu_seconds"]
    return rows.merge(cost, on="model", how="left")[columns].sort_values(["objective", "variant", "seed"])


def by_task(found: pd.DataFrame) -> str:
    """Objective by task, tuned in full on most examples; behind it the same model from random weights."""
    plain = found[(found["strategy"] == "as-is") & (found["method"] == "full") & (found["control"] == "")]
    plain = plain[plain["examples"] == plain.groupby("task")["examples"].transform("max")]
    tasks = list(dict.fromkeys(plain["task"]))
    lines = ["| objective | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    for (objective, variant), own in plain.groupby(["objective", "variant"], sort=False):
        cells = []
        for task in tasks:
            of = own[own["task"] == task].set_index("trained")
            values = [short(of["value"].get(which, float("nan"))) for which in (True, False)]
            ends = f" ({short(of['low'][True])} to {short(of['high'][True])})" if True in of.index else ""
            cells.append(f"{values[0]}{ends}, {values[1]}")
        lines.append(f"| {objective}{'+' + variant if variant else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
