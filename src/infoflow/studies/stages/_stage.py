"""What a stage of a study is: a piece of work that is keyed by what it depends on, and done once."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from infoflow.flow import Failure
from infoflow.results import TableSchema

from .._workbench import Part

Kind = Literal["train", "record", "measure", "compare", "align", "prune", "check"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStage(ABC):
    """A stage of a graph: an engine runs it in any process that sees the run folder.

    `needs` are the keys of stages that must be done before. Results lie in files that are named after what they depend
    on, so a stage that is done stays done, in every later graph that holds it.
    """

    kind: ClassVar[Kind]

    needs: tuple[str, ...] = ()
    cost: float = 1.0  # seconds: on record, else estimated
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def key(self) -> str:
        """What the result depends on, as a hash; no two stages of a graph share one."""

    @property
    @abstractmethod
    def label(self) -> str:
        """For people: "train causal-lm/seed-0"."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether nothing is missing; the same answer in every process of a group."""

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Do what is missing; returns facts about it, as plain values."""

    def tables(self) -> Part:
        """Its rows of the run's tables, with the columns that say which models they are about."""
        return {}

    def failures(self) -> list[Failure]:
        """Measures that failed in it: each has cost a table of its own and no other."""
        return []

    def schemas(self) -> dict[str, TableSchema]:
        """The schemas of `tables`, key columns included."""
        return {}
