"""Runs that hold invented tables of tuned models and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from findings.adapted_tables import WITH_MODELS, Adapted
from synthetic_run import make_study

from infoflow.adaptation import TASK_LEAKAGE
from infoflow.results import KEYS, RunFolder


def write_run(path: Path, given: Adapted | None = None, only: Sequence[str] = ()) -> RunFolder:
    """A study with the tables of its tuned models; `only` these, where given."""
    given = given or Adapted(objectives=("causal-lm", "masked-lm"))
    run = make_study(path, given.seeds, given.objectives[:2], tables=("training_runs",))
    for name, frame in given.tables(only).items():
        write_table(run, name, frame)
    return run


def write_table(run: RunFolder, name: str, frame: pd.DataFrame) -> None:
    """One of them, by its schema."""
    if name == TASK_LEAKAGE.name:
        run.tables.write(frame, TASK_LEAKAGE)
    elif name in WITH_MODELS:
        run.tables.write(frame, WITH_MODELS[name].with_keys(*KEYS))
