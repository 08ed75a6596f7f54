"""Combine the tables of all stages, and judge the published claims on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow._subjects import provided
from infoflow.findings import FINDINGS, FINDINGS_TABLE, Finding, evaluate
from infoflow.flow import is_first, wait_for_all
from infoflow.results import RunFolder, TableSchema

from .._workbench import stacked
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class Check(AbstractStage):
    """The last stage of a graph: cheap, and repeated in every call, since claims may have changed."""

    kind = "check"
    runs_models = False
    folder: RunFolder
    stages: Sequence[AbstractStage]  # stages whose tables form the run's tables
    claims: bool = True

    def depends(self) -> list[Any]:
        return ["check", [stage.key for stage in self.stages]]

    @property
    def label(self) -> str:
        return "check findings" if self.claims else "write tables"

    def is_done(self) -> bool:
        return False

    def run(self) -> dict[str, Any]:
        if is_first():
            write_tables(self.folder, self.stages, alone=self.claims)
            if self.claims:
                write_derived(self.folder)
        wait_for_all()
        return {}


def write_tables(folder: RunFolder, stages: Sequence[AbstractStage], alone: bool) -> None:
    """Write the tables of the run: the rows of all stages, concatenated in their order.

    `alone`: other tables that infoflow wrote there belong to an earlier plan and are removed. Otherwise only those
    tables are removed that these stages would have written if no measure had failed.
    """
    schemas: dict[str, TableSchema] = {}
    for stage in stages:
        schemas |= stage.schemas()
    tables = stacked(stage.tables() for stage in stages)
    if alone:
        folder.tables.clear()
    folder.tables.remove({failure.table for stage in stages for failure in stage.failures()} - tables.keys())
    for name, frame in tables.items():
        folder.tables.write(frame, schemas[name])


def write_derived(folder: RunFolder, own: Sequence[Finding] = ()) -> None:
    """Judge every claim and the user's `own` on the run's tables; make the tables that follow."""
    _derive(folder, judged=True)
    folder.tables.write(evaluate(folder.tables, [*FINDINGS.values(), *own]), FINDINGS_TABLE)
    _derive(folder, judged=False)


def _derive(folder: RunFolder, judged: bool) -> None:
    """Make the subjects' tables from the run's tables: those that claims read, or those that follow the verdicts."""
    for derived in (derived for own in provided("claims", "DERIVED") for derived in own):
        if derived.judged == judged:
            _replace(folder, derived.schemas, derived.make(folder.tables))


def _replace(folder: RunFolder, schemas: Sequence[TableSchema], found: Mapping[str, pd.DataFrame]) -> None:
    """Write these tables, and remove those of `schemas` that were not found this time."""
    folder.tables.remove(schema.name for schema in schemas)
    for schema in schemas:
        if schema.name in found:
            folder.tables.write(found[schema.name], schema)
