"""What a stage of a study is: a piece of work that is keyed by what it depends on, and done once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from infoflow.flow import Failure
from infoflow.results import TableSchema

from .._study_models import StudyModels
from .._workbench import Part

AnyStage = TypeVar("AnyStage", bound="AbstractStage")


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStage(ABC):
    """A stage of a graph: an engine runs it in any process that sees the run folder.

    `needs` are the keys of stages that must be done before. Results lie in files that are named after what they depend
    on, so a stage that is done stays done, in every later graph that holds it.
    """

    kind: ClassVar[str]
    """The first word of its label; stages of one kind tell of each other what they cost."""
    runs_models: ClassVar[bool] = True
    """Whether it takes the plan's threads and, where there is one, the GPU."""

    needs: tuple[str, ...] = ()
    cost: float = 1.0  # seconds: on record, else estimated
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence["AbstractStage"]) -> "Sequence[AbstractStage]":
        """Those that the plan (`models.plan`) asks for, with their `needs`: keys of stages among those `before`."""
        return []

    @property
    @abstractmethod
    def key(self) -> str:
        """What the result depends on, as a hash; no two stages of a graph share one."""

    @property
    @abstractmethod
    def label(self) -> str:
        """For people: "train causal-lm/seed-0"."""

    @property
    def estimate(self) -> float:
        """Rough cost relative to the training of a masked LM, for as long as none of its kind is on record."""
        return 0.05

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


def firsts(stages: Sequence[AnyStage], result: Callable[[AnyStage], str]) -> list[AnyStage | None]:
    """For each stage the first of those before it that have the same `result`, if there are: whoever comes second waits
    for it and finds what it left. Two processes that made it at once would take each other's files away."""
    known: dict[str, AnyStage] = {}
    found: list[AnyStage | None] = []
    for stage in stages:
        first = known.setdefault(result(stage), stage)
        found.append(None if first is stage else first)
    return found
