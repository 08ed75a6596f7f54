"""How hard do the translation encoders of the variations work? Not used to choose settings.

    python experiments/campaigns/settings/context.py --runs runs/settings [--updates 300]

For each run that `sweep.py` has finished: the translation model is trained on for some updates with its encoder's
self-attention closed, with its decoder's, and with all open; what is lost goes to `context.csv` beside this file, where
variations whose folders are gone stay.
Interrupted, the same command continues.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import pandas as pd

from infoflow.foundation import make_display, set_threads, use_display
from infoflow.results import RunFolder
from infoflow.studies import ContextPlan, Retrain, StudyPlan, Train, graph

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import put

COLUMNS = ["kind", "which", "number", "retrained", "metric", "value", "low", "high", "baseline", "count"]


def context(folder: Path, updates: int) -> pd.DataFrame | None:
    """Rows of the run's translation model; None where it has not been trained to its end."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    plan = StudyPlan.from_json(facts["plan"])
    translation = tuple(name for name in plan.objectives if name.startswith("translation"))
    plan = dataclasses.replace(plan, context=ContextPlan(on=True, objectives=translation, updates=updates))
    stages = graph(plan, RunFolder(folder))
    if not all(stage.is_done() for stage in stages.of(Train)):
        return None
    frames = []
    for stage in stages.of(Retrain):
        if not stage.is_done():
            stage.run()
        frames.append(stage.tables()["encoder_context"][COLUMNS])
    told = {"corpus": "europarl" if "europarl" in plan.corpus.name else plan.corpus.name, "variation": facts["title"]}
    return pd.concat(frames).assign(**told)[[*told, *COLUMNS]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/settings"))
    parser.add_argument("--updates", type=int, default=300)
    arguments = parser.parse_args()
    set_threads(1)
    with use_display(make_display("plain")):
        for file in sorted(arguments.runs.glob("*/run.json")):
            if (rows := context(file.parent, arguments.updates)) is not None:
                put(rows, Path(__file__).with_name("context.csv"), ["corpus", "variation"])
                print(rows.to_string(), flush=True)


if __name__ == "__main__":
    main()
