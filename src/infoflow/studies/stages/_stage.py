"""Base classes of a study's stages, which declare their results, models and dependencies and share the rest.

A stage is a dataclass that declares its `kind`, its label (`named`), the tables that it `makes`, their dependencies
(`depends`) and a `guess` of its cost, and does its work in `make`. This file does the rest, once for each kind of
result: tables that are made together (`AbstractTableStage`), tables that are kept one by one (`AbstractMeasuring`), and
plain values, with or without files (`AbstractFactStage`, `AbstractModelStage`). `OfModels` and `OfRecipe` define which
models a stage covers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import pandas as pd

from infoflow.flow import Failure, agree
from infoflow.foundation import digest
from infoflow.results import KEYS, PAIR_KEYS, Recipe, Subject, TableSchema

from .._result_cache import Computed, Part, ResultCache, Schemas
from .._study_models import StudyModels

AnyStage = TypeVar("AnyStage", bound="AbstractStage")


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStage(ABC):
    """A stage of a graph, which an engine runs in any process with access to the run folder.

    `needs` are the keys of the stages that must be done first. Result files are named after their dependencies, so a
    finished stage stays finished in every later graph that contains it.
    """

    kind: ClassVar[str]  # the first word of its label; the recorded cost of a stage scales the estimates of its kind
    named: ClassVar[str]  # its label, for people: "train {self.recipe.name}"
    makes: ClassVar[Sequence[TableSchema]] = ()  # its tables, without the columns that identify models
    guess: ClassVar[float] = 0.05
    """Rough cost relative to the training of a masked LM, used until the cost of a stage of this kind is recorded."""
    with_training: ClassVar[bool] = False  # whether `infoflow train` runs it too, after the training of its model
    runs_models: ClassVar[bool] = True  # whether it uses the plan's threads and, if available, the GPU

    needs: tuple[str, ...] = ()
    cost: float = 1.0  # seconds, recorded or else estimated
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence["AbstractStage"]) -> "Sequence[AbstractStage]":
        """The stages that the plan (`models.plan`) requests; their `needs` are keys of stages in `before`."""
        return []

    @abstractmethod
    def depends(self) -> list[Any]:
        """Everything that the stage's result depends on; it must differ between any two stages of a graph."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether no result is missing; every process of a group must get the same answer."""

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Do the missing work, and return facts about it as plain values."""

    @cached_property
    def key(self) -> str:
        """The hash of the stage's dependencies, which identifies the stage on every machine."""
        return digest(self.depends())

    @property
    def label(self) -> str:
        return self.named.format(self=self)

    @property
    def estimate(self) -> float:
        return self.guess

    def check(self) -> None:  # noqa: B027 (most need nothing)
        """Raise an error for whatever would make the stage fail hours later; called before any stage is run."""

    def columns(self) -> Mapping[str, Any]:
        """The key columns, with values, that identify the models of the stage's rows."""
        return {}

    def plain_schemas(self) -> Schemas:
        """The schemas of its tables, without the columns that identify models."""
        return {schema.name: schema for schema in self.makes}

    def schemas(self) -> Schemas:
        """The schemas of `tables`, including key columns."""
        return {name: self._keyed(schema) for name, schema in self.plain_schemas().items()}

    def tables(self) -> Part:
        """Its rows of the run's tables, with the columns that identify models."""
        return {}

    def failures(self) -> list[Failure]:
        """Measures that failed in this stage; each failure costs only the measure's own table."""
        return []

    def _keyed(self, schema: TableSchema) -> TableSchema:
        columns = self.columns()
        keys = PAIR_KEYS if PAIR_KEYS[0].name in columns else KEYS
        return schema.with_keys(*(key for key in keys if key.name in columns and key.name not in schema.column_names))

    def _with_columns(self, part: Part) -> Part:
        """Add the key columns; tables that already have one, such as the update of checkpoints, keep their own."""
        columns = self.columns()
        return {
            name: frame.assign(**{one: value for one, value in columns.items() if one not in frame})
            for name, frame in part.items()
        }


class AbstractKept(AbstractStage):
    """A stage that stores its result in the run folder, under a name and a key."""

    stored: ClassVar[str]  # the name under which the result is stored

    @property
    @abstractmethod
    def cache(self) -> ResultCache:
        """The result cache."""

    @property
    def content(self) -> str:
        """The key of the result, which is the stage's own key unless stages of several models share a result."""
        return self.key

    def is_done(self) -> bool:
        return agree(self.cache.done(self.stored, self.content))


class AbstractTableStage(AbstractKept):
    @abstractmethod
    def make(self) -> pd.DataFrame | Part:
        """The tables of `makes`, or only the rows if it makes a single table."""

    def run(self) -> dict[str, Any]:
        self.cache.tables(self.stored, self.content, self.plain_schemas(), self._made)
        return {}

    def tables(self) -> Part:
        return self._with_columns(self.cache.read(self.stored, self.content))

    def _made(self) -> Part:
        made = self.make()
        if isinstance(made, dict):
            return made
        (name,) = self.plain_schemas()
        return {name: made}


class AbstractMeasuring(AbstractKept):
    """A stage that stores tables one by one, so that new tables leave the others unchanged and each may fail alone."""

    @abstractmethod
    def table_keys(self) -> Mapping[str, str]:
        """The key of each table."""

    @abstractmethod
    def make(self, names: list[str]) -> Computed:
        """The tables called `names`."""

    def is_done(self) -> bool:
        return agree(all(self.cache.done(self.stored, key) for key in self.table_keys().values()))

    def run(self) -> dict[str, Any]:
        self.cache.each_table(self.stored, self.table_keys(), self.plain_schemas(), self.make)
        return {"failures": len(self.failures())}

    def tables(self) -> Part:
        return self._with_columns(self.cache.read_each(self.stored, self.table_keys()))

    def failures(self) -> list[Failure]:
        """Measures that failed; their tables are missing, and the stage is not done."""
        return self.cache.failures(self.stored, self.table_keys())


class AbstractFactStage(AbstractKept):
    @abstractmethod
    def make(self) -> dict[str, Any]:
        """Compute the plain values of the result."""

    def run(self) -> dict[str, Any]:
        return self.cache.facts(self.stored, self.content, self.make)

    def facts(self) -> dict[str, Any]:
        return self.cache.read_facts(self.stored, self.content)


@runtime_checkable
class TrainedInFolder(Protocol):
    @property
    def models(self) -> StudyModels: ...
    @property
    def key(self) -> str: ...
    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractModelStage(AbstractFactStage):
    """A stage that trains a model in its own folder; it is done if its facts are recorded and the weights exist."""

    model: TrainedInFolder

    @property
    def cache(self) -> ResultCache:
        return self.model.models.bench

    @property
    def content(self) -> str:
        return self.model.key

    def is_done(self) -> bool:
        there = (self.model.folder / "model" / "model.safetensors").is_file()
        return agree(there and self.cache.done(self.stored, self.content))

    def run(self) -> dict[str, Any]:
        if not self.is_done():
            self.cache.remove(self.stored, self.content)  # the weights are gone
        return super().run()


@dataclass(frozen=True, kw_only=True, eq=False)
class OfModels(AbstractStage):
    models: StudyModels

    @property
    def cache(self) -> ResultCache:
        return self.models.bench


@dataclass(frozen=True, kw_only=True, eq=False)
class OfRecipe(OfModels):
    """A stage of one trained model, whose rows are about that model."""

    recipe: Recipe

    def columns(self) -> Mapping[str, Any]:
        return Subject(recipe=self.recipe).keys()


def firsts(stages: Sequence[AnyStage], result: Callable[[AnyStage], str]) -> list[AnyStage | None]:
    """For each stage, the first preceding stage with the same `result`, or None.

    The later stage waits for the first one and reuses its result, since two processes that make the same result at the
    same time would remove each other's files.
    """
    known: dict[str, AnyStage] = {}
    found: list[AnyStage | None] = []
    for stage in stages:
        first = known.setdefault(result(stage), stage)
        found.append(None if first is stage else first)
    return found
