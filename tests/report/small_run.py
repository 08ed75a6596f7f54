"""Runs with few rows of numbers that a test chooses, so that a sentence or a picture can be foretold."""

import math
from collections.abc import Sequence
from pathlib import Path

from synthetic_run import MAIN_STACK, _model, _write

from infoflow.results import RunFolder


def write_run(path: Path, kind: str = "study", **tables: Sequence[dict]) -> RunFolder:
    """A run of the models that the tables name, with these tables and nothing else."""
    run = RunFolder(path)
    models = {}
    for name, rows in tables.items():
        _write(run, name, "", list(rows))
        for row in rows:
            models[row["model"]] = {"name": row["model"], "objective": row["objective"], "seed": row["seed"]}
    run.update(kind=kind, models=list(models.values()))
    return run


def keys_of(objective: str, seed: int = 0, trained: bool = True, model: str = "") -> dict:
    """The columns that say which model a row is about; `model` names one that was given."""
    keys = _model(objective, seed, trained)
    return {**keys, "model": model or keys["model"]}


def estimate(value: float, half: float = math.nan, baseline: float = math.nan) -> dict:
    """The columns of a number with an interval of `half` to each side, without replicates: figures keep it so."""
    return {"value": value, "low": value - half, "high": value + half, "baseline": baseline, "count": 9}


def information(objective: str, layer: int, seed: int = 0, trained: bool = True, model: str = "", **numbers) -> dict:
    """A row of the information about the input token; `numbers`: of the estimate."""
    place = {"stack": MAIN_STACK.get(objective, "encoder"), "regime": "clean", "side": "input", "layer": layer}
    return {**keys_of(objective, seed, trained, model), **place, "entropy": 6.0, "clusters": 500, **numbers}


def identity(objective: str, layer: int, seed: int = 0, trained: bool = True, model: str = "", **numbers) -> dict:
    """A row of the share of neighbours that are the same token."""
    place = {"stack": MAIN_STACK.get(objective, "encoder"), "layer": layer}
    return {**keys_of(objective, seed, trained, model), **place, "neighbours": 50, "metric": "cosine", **numbers}
