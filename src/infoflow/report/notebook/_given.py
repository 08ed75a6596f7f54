"""Tables of `measure`, `compare` or `analyze` in the form of a run, which the report's sections can read."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from infoflow.results import END, RunFolder, StoredTable, Tables, TableSchema, with_keys

_KEYS: dict[str, Any] = {
    "model": "model",
    "objective": "model",
    "variant": "",
    "architecture": "",
    "start": "",
    "seed": 0,
    "update": END,
}


class GivenRun(RunFolder):
    """A run in memory: one table with its models."""

    def __init__(self, name: str, frame: pd.DataFrame, schema: TableSchema | None = None) -> None:
        super().__init__(name)
        self._frames = _Given({name: keyed(frame)}, schema)

    def read(self) -> dict[str, Any]:
        models = [model for frame in self._frames.values() for model in _models(frame)]
        return {"kind": "study" if _of_study(models) else "analyze", "models": models}

    @property
    def tables(self) -> "_Given":  # type: ignore[override]
        return self._frames


class _Given(Tables):
    """Tables in memory."""

    def __init__(self, frames: Mapping[str, pd.DataFrame], schema: TableSchema | None) -> None:
        self._frames, self._schema = dict(frames), schema

    def stored(self, name: str) -> StoredTable:
        return StoredTable(self._frames[name], self._schema, {})  # type: ignore[arg-type]

    def __iter__(self):
        return iter(self._frames)


def keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain frame with the keys of a study's tables; without a model column, its model is called "model"."""
    frame = pd.DataFrame(frame).reset_index(drop=True)
    sides = ("_a", "_b") if "model_a" in frame else ("",)
    for side in sides:
        if f"objective{side}" in frame:
            continue
        missing = {f"{name}{side}": value for name, value in _KEYS.items() if f"{name}{side}" not in frame}
        frame = frame.assign(**missing)
    return with_keys(frame if "trained" in frame else frame.assign(trained=True))


def _models(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Every model of the table, once."""
    sides = ("_a", "_b") if "model_a" in frame else ("",)
    parts = [frame[[f"{name}{side}" for name in _KEYS]].set_axis(list(_KEYS), axis=1) for side in sides]
    return pd.concat(parts).drop_duplicates().rename(columns={"model": "name"}).to_dict("records")


def _of_study(models: list[dict[str, Any]]) -> bool:
    """Whether the models are named as in a study, by objective and seed."""
    return all(str(model["name"]).endswith(f"/seed-{model['seed']}") for model in models)
