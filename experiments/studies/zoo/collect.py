"""Tables of a finished study of objectives, small enough to commit.

    python experiments/studies/zoo/collect.py runs/zoo-three-seeds --to experiments/studies/zoo/three-seeds

Four significant digits; of the map the means over seeds, of scores those on test sentences, of `match` the first seed,
and of claims those that could be tested.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import asked

ALWAYS_LEFT_OUT = ("replicates", "model", "start", "update", "signature")


def kept(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table that are committed."""
    if name == "objective_map":
        return frame[frame["seed"] == -1].drop(columns="seed")
    if name == "task_scores":
        return frame[frame["split"] == "test"].drop(columns="split")
    if name == "match":
        return frame[frame["seed"] == frame["seed"].min()].drop(columns=["seed", "trained"])
    if name == "findings":
        columns = ["id", "architecture", "verdict", "effect", "low", "high", "threshold", "unit", "seeds", "reason"]
        return frame.loc[frame["verdict"] != "not testable here", columns]
    return frame


def main() -> None:
    run, to = asked(__doc__)
    for name in ("findings", "match", "objective_map", "objective_distances", "objective_families", "task_scores"):
        if name not in run.tables:
            continue
        frame = kept(name, pd.DataFrame(run.tables[name]).drop(columns=list(ALWAYS_LEFT_OUT), errors="ignore"))
        same = [column for column in ("architecture", "variant") if column in frame and frame[column].nunique() < 2]
        frame = frame.drop(columns=same)
        frame.to_csv(to / f"{name}.csv", index=False, float_format="%.4g")
        print(f"{name}: {len(frame)} rows")


if __name__ == "__main__":
    main()
