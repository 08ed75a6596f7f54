"""Tables and verdicts of a finished study, small enough to commit: CSV files without replicates beside this script.

    infoflow study experiments/studies/laptop/plan.toml --out runs/laptop
    python experiments/studies/laptop/collect.py runs/laptop

Five significant digits; untrained models and both splits stay. README.md says what was seen.
"""

import sys
from pathlib import Path

import pandas as pd

from infoflow.studies import Run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from collecting import asked  # noqa: E402

TABLES = (
    "task_scores", "findings", "mutual_information", "layer_distance", "model_distance", "identity_neighbours",
    "position_neighbours", "context_neighbours", "change_by_frequency", "influence_by_frequency", "geometry",
    "encoder_context", "alignment", "learning_curves", "pruning",
)  # fmt: skip
LISTS = ("replicates", "tokens_by_size", "value_by_size", "plug_in_by_size")  # one cell holds many numbers


def main() -> None:
    run, to = asked(__doc__, HERE)
    for name in TABLES:
        if name in run.tables:
            frame = pd.DataFrame(run.tables[name]).drop(columns=list(LISTS), errors="ignore")
            same = [column for column in ("architecture", "start", "variant") if column in frame]
            frame = frame.drop(columns=[column for column in same if frame[column].nunique() < 2])
            frame.to_csv(to / f"{name}.csv", index=False, float_format="%.5g")
            print(name, len(frame))
    if "head_positional" in run.tables:
        best_heads(run).to_csv(to / "best_heads.csv", index=False, float_format="%.4g")
    print(verdicts(pd.DataFrame(run.tables["findings"])))


def best_heads(run: Run) -> pd.DataFrame:
    """Of each model and kind of attention the head that looks most at a neighbour, at rare tokens, or that copies."""
    patterns = pd.DataFrame(run.tables["head_patterns"])
    patterns = patterns[(patterns["score"] == "share") & patterns["pattern"].isin(["duplicate", "induction"])]
    positional = pd.DataFrame(run.tables["head_positional"])
    rare = pd.DataFrame(run.tables["head_rare_token"])
    parts = [
        positional.assign(statistic="attention to offset " + positional["offset"].map("{:+d}".format)),
        rare.assign(statistic="largest on one of the " + rare["rarest"].astype(str) + " rarest"),
        patterns.assign(statistic=patterns["pattern"]),
    ]
    rows = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    keys = ["statistic", "objective", "trained", "stack", "kind", "seed"]
    best = rows.loc[rows.groupby(keys)["value"].idxmax()]
    return best[[*keys, "layer", "head", "value", "low", "high", "baseline"]]


def verdicts(findings: pd.DataFrame) -> str:
    """A row of a Markdown table for each claim that was judged."""
    judged = findings[~findings["verdict"].isin(["not testable here"])]
    return "\n".join(
        f"| {row['id']} | {row['verdict']} | {row['effect']:.3g} ({row['low']:.3g} to {row['high']:.3g}), "
        f"threshold {row['threshold']:.3g} {row['unit']} | {row['note'] or row['reason']} |"
        for row in judged.to_dict("records")
    )


if __name__ == "__main__":
    main()
