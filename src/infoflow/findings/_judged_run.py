"""A run with judged claims, as far as a comparison needs and keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import END, RunFolder

from ._scale_schema import FINDINGS_BY_RUN, FINDINGS_OVER_SCALE

OVER_SCALE = "over-scale"
"""The kind of a run folder that holds a comparison."""
_CLAIM = ["id", "architecture"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedRun:
    """What a comparison over scale keeps of one run, enough to repeat the comparison without the run's tables."""

    entry: Mapping[str, Any]
    """Its part of the comparison's run.json: `ScaleRun.entry`."""

    rows: pd.DataFrame
    """Its part of `FINDINGS_OVER_SCALE`."""

    findings: pd.DataFrame
    """Its part of `FINDINGS_BY_RUN`."""

    @property
    def name(self) -> str:
        return str(self.entry["run"])

    @property
    def weights(self) -> dict[str, str]:
        """SHA-256 of the weights of each trained model → its name."""
        return dict(self.entry.get("weights", {}))

    @property
    def plan(self) -> Mapping[str, Any]:
        """The plan's sections about the models and their training."""
        return self.entry.get("plan", {})

    @property
    def has_course(self) -> bool:
        """Whether it has findings at checkpoints, which also are scales."""
        return bool((self.rows["update"] != END).any())

    def costs(self) -> list[float]:
        """Training cost of the claim's models for each of its findings: tokens times parameters."""
        ends = self.rows[self.rows["update"] == END].drop_duplicates(_CLAIM).set_index(_CLAIM)
        cost = (ends["tokens"] * ends["parameters"]).fillna(0.0)
        return [float(cost[id, family]) for id, family in self.findings[_CLAIM].itertuples(index=False)]


def judged_runs(folder: RunFolder) -> list[JudgedRun]:
    """The runs of an earlier comparison.

    Raises:
        UserError: The comparison is damaged or of another version.
    """
    again = "Compare its studies again: infoflow over-scale."
    entries = folder.read().get("runs")
    if not isinstance(entries, list) or not all(isinstance(one, dict) and "run" in one for one in entries):
        raise UserError(f"{folder.path} is damaged: its run.json does not name the runs that were compared. {again}")
    frames = {}
    for schema in (FINDINGS_OVER_SCALE, FINDINGS_BY_RUN):
        if schema.name not in folder.tables:
            raise UserError(f"{folder.path} has no table {schema.name}. {again}")
        stored = folder.tables.stored(schema.name)
        if stored.schema.version != schema.version or set(stored.frame) != set(schema.column_names):
            raise UserError(f"{folder.path} was compared by another version of infoflow. {again}")
        effects = [list(each) for each in stored.frame["effects"]]  # not arrays, since they come from a file
        frames[schema.name] = schema.conform(stored.frame.assign(effects=effects))
    scale, findings = frames[FINDINGS_OVER_SCALE.name], frames[FINDINGS_BY_RUN.name]
    found = []
    for entry in entries:
        rows = scale[scale["run"] == entry["run"]]
        if rows.empty:
            raise UserError(f"{folder.path} is damaged: it holds no findings of {entry['run']}. {again}")
        found.append(JudgedRun(entry=entry, rows=rows, findings=findings[findings["run"] == entry["run"]]))
    return found
