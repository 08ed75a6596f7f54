"""Small tables of a probed run, for this folder: `python experiments/studies/probing/summary.py runs/probing`."""

import argparse
from pathlib import Path

import pandas as pd

from infoflow.studies import Run

HERE = Path(__file__).parent
KEYS = {
    "probe_scores": ["task", "probe", "labels", "words", "metric", "share"],
    "probe_codelength": ["task", "code", "labels", "metric", "probe_layer"],
    "probe_mixing": ["task", "statistic"],
    "probe_depth": ["task", "statistic"],
    "probe_trees": ["structure", "probe", "metric"],
}


def over_seeds(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Means over the seeds of the models, with their standard deviation."""
    layer = ["layer"] if "layer" in frame else []
    groups = frame.groupby(["objective", "trained", *keys, *layer], sort=False)
    found = groups.agg(
        value=("value", "mean"), sd=("value", "std"), baseline=("baseline", "mean"), models=("value", "size")
    )
    return found.round(4).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = Run.open(parser.parse_args().run)
    for name, keys in KEYS.items():
        if name in run.tables:
            frame = run.tables[name]
            if name == "probe_scores":  # words of seen and unseen types, and macro-F1, stay in the run
                frame = frame[(frame["words"] == "all") & (frame["metric"] != "macro_f1")]
            over_seeds(frame, keys).to_csv(HERE / f"{name}.csv", index=False)
    found = run.findings[run.findings["id"].str.startswith("probing:")]
    columns = [
        "id",
        "verdict",
        "effect",
        "low",
        "high",
        "threshold",
        "unit",
        "control",
        "control_name",
        "seeds",
        "reason",
    ]
    found[columns].round(4).to_csv(HERE / "findings.csv", index=False)


if __name__ == "__main__":
    main()
