"""A run that holds any single table shows it."""

import warnings

import pandas as pd
import pytest
from drawn import tell
from whole_study import InMemory

import infoflow.studies  # noqa: F401 (imports every part that makes a table)
from infoflow.results import KEYS, PAIR_KEYS, TABLES

VALUES = {"string": "one", "int64": 1, "float64": 0.5, "bool": True, "list<float64>": [0.4, 0.5, 0.6]}
MODEL = {"model": "a", "objective": "masked-lm", "variant": "", "architecture": "bert", "start": "", "seed": 0}
MODEL |= {"update": -1, "trained": True}
OTHER = MODEL | {"model": "b", "objective": "causal-lm"}
PAIRS = ("model_distance", "space_similarity")
VERDICTS = {name for name in TABLES if name.startswith("findings")}  # shown as cards


@pytest.mark.parametrize("name", sorted({*TABLES} - VERDICTS))
def test_a_run_with_one_table_shows_it(name) -> None:
    schema = TABLES[name]
    keys = PAIR_KEYS if name in PAIRS or "model_a" in schema.column_names else KEYS
    schema = schema.with_keys(*(key for key in keys if key.name not in schema.column_names))
    sides = MODEL | {f"{key}_a": value for key, value in MODEL.items()} | {f"{key}_b": OTHER[key] for key in MODEL}
    row = {column.name: sides.get(column.name, VALUES[column.dtype]) for column in schema.columns}
    if schema.over_training:
        row["update"] = 1
    run = InMemory({"kind": "study", "models": [MODEL, OTHER]}, {name: schema.conform(pd.DataFrame([row]))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sections that need more than one row leave themselves out
        story = tell(run)
    drawn = {table for figure in story.figures for table in figure.tables}
    noted = [note for section in story.sections for note in section.notes if f"the table {name} " in note]
    assert name in drawn or noted
