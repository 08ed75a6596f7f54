"""Stages that make tables of their own, once."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from infoflow.flow import agree

from .._study_models import StudyModels
from .._workbench import Part
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractTableStage(AbstractStage):
    """Done where its tables are kept under its key; else it makes them."""

    recorded: ClassVar[str]
    """Under which name its tables are kept."""
    models: StudyModels

    @abstractmethod
    def make(self) -> Part:
        """The tables of `schemas`."""

    def is_done(self) -> bool:
        return agree(self.models.bench.done(self.recorded, self.key))

    def run(self) -> dict[str, Any]:
        self.models.bench.tables(self.recorded, self.key, self.schemas(), self.make)
        return {}

    def tables(self) -> Part:
        return self.models.bench.read(self.recorded, self.key)
