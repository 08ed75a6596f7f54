"""Put the tables of all stages together, and judge the published claims by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.results import RunFolder, TableSchema

from .._derived import write_derived
from .._workbench import stacked
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class Check(AbstractStage):
    """The last stage of a graph: cheap, and done again in every call, since claims may have changed."""

    kind = "check"
    runs_models = False
    folder: RunFolder
    stages: Sequence[AbstractStage]  # whose tables make up the run's
    claims: bool = True

    @cached_property
    def key(self) -> str:
        return digest(["check", [stage.key for stage in self.stages]])

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
    """The tables of the run: the rows of all stages below each other, in the stages' order.

    `alone`: other tables that infoflow wrote there are an earlier plan's, and go. Else those go that would be of these
    stages, had their measure not failed.
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
