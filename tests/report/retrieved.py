"""Runs that hold invented tables of readers with passages and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from findings.retrieved_tables import SCHEMAS, Retrieved
from synthetic_run import make_study

from infoflow.results import KEYS, RunFolder


def write_run(path: Path, given: Retrieved | None = None, only: Sequence[str] = ()) -> RunFolder:
    """A study with the tables about retrieval; `only` these, where given."""
    given = given or Retrieved()
    run = make_study(path, given.seeds, ("causal-lm", "masked-lm"), tables=("training_runs",))
    for name, frame in given.tables([one for one in SCHEMAS if not only or one in only]).items():
        write_table(run, name, frame)
    return run


def write_table(run: RunFolder, name: str, frame: pd.DataFrame) -> None:
    """One of them, by its schema; of the table over updates the update is the run's own."""
    schema = SCHEMAS[name]
    named = {column.name for column in KEYS}
    own = replace(schema, columns=tuple(column for column in schema.columns if column.name not in named))
    run.tables.write(frame, own.with_keys(*KEYS))
