"""Identifies a measured model: the recipe that it follows, and its position in training.

Every table of models has the columns `KEYS`, every table of pairs of models `PAIR_KEYS`; `_select` reads them. Nothing
else distinguishes models, and no column packs two of these into one text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ._schema import Column

END = -1
"""Value of `update` at the end of training, and for a pretrained or external model."""
UNTRAINED = 0
"""Value of `update` for the initial state, before the first update."""

KEYS = (
    Column("model", "string", "", "name of the model"),
    Column("objective", "string", "", "what it was trained for"),
    Column("variant", "string", "", 'variant of its objective; "": none'),
    Column("architecture", "string", "", "family of its blocks, as Hugging Face calls it"),
    Column("start", "string", "", 'model that it started from; "": random weights'),
    Column("seed", "int64", "", "seed of initialisation, data order and noise"),
    Column("update", "int64", "updates", "optimiser steps so far; 0: none, -1: all"),
    Column("trained", "bool", "", "false: as initialised (the control)"),
)
"""The columns that identify a row's model, uniquely by their combination."""


def pair_keys() -> tuple[Column, ...]:
    """`KEYS` of two models: each name gets `_a` and `_b`, except `trained`, which both share."""
    each = [column for column in KEYS if column.name != "trained"]
    return (
        *(
            column.named(f"{column.name}_{side}", f"of the {which} model: {column.description}")
            for column in each
            for side, which in (("a", "first"), ("b", "second"))
        ),
        Column("trained", "bool", "", "false: both models as initialised (the control)"),
    )


PAIR_KEYS = pair_keys()
"""The key columns of tables of two models."""


@dataclass(frozen=True, slots=True)
class Spec:
    """An objective or an architecture: its name, and the options of a variant."""

    name: str
    variant: str = ""  # name in tables and legends; "": default options
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Name and variant, for people and for file names: "translation+token-dropout"."""
        return f"{self.name}+{self.variant}" if self.variant else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything that determines a training run, besides the corpus and budget that all models of a study share."""

    objective: Spec
    architecture: Spec
    seed: int
    start: "Subject | Path | None" = None  # the model it starts from; None: random weights

    @property
    def name(self) -> str:
        """Name of its models in tables and, as a path, in the run folder: "masked-lm/seed-0"."""
        parts = [self.objective.label, *([] if self.architecture == BERT else [self.architecture.label])]
        start = [] if self.start is None else [f"from-{self.start_name.replace('/', '-')}"]
        return "/".join(["-on-".join(parts), *start, f"seed-{self.seed}"])

    @property
    def start_name(self) -> str:
        """Name of the model that it starts from; "": random weights."""
        return "" if self.start is None else self.start.name if isinstance(self.start, (Path, Subject)) else ""


BERT = Spec("bert")
"""The family that studies train by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A measured model: a recipe at the end of its training, before it, or in between."""

    recipe: Recipe
    update: int | None = None  # None: the end; 0: untrained
    given: str = ""  # name of a model that no study trained

    @property
    def trained(self) -> bool:
        return self.update != UNTRAINED

    @property
    def name(self) -> str:
        return self.given or self.recipe.name

    @property
    def label(self) -> str:
        """Name and state, for people: "masked-lm/seed-0 (untrained)"."""
        if self.update is None:
            return self.name
        return f"{self.name} ({'untrained' if not self.trained else f'update {self.update:,}'})"

    def keys(self) -> dict[str, Any]:
        """The model's values in the columns `KEYS`."""
        return {
            "model": self.name,
            "objective": self.recipe.objective.name,
            "variant": self.recipe.objective.variant,
            "architecture": self.recipe.architecture.label,
            "start": self.recipe.start_name,
            "seed": self.recipe.seed,
            "update": END if self.update is None else self.update,
            "trained": self.trained,
        }

    def before_training(self) -> "Subject":
        """The model's control: the same model as initialised."""
        return replace(self, update=UNTRAINED)


def pair_values(first: Subject, second: Subject) -> dict[str, Any]:
    """Values of two models, both trained or both untrained, in the columns `PAIR_KEYS`."""
    assert first.trained == second.trained
    sides = {
        f"{name}_{side}": value for side, one in (("a", first), ("b", second)) for name, value in one.keys().items()
    }
    del sides["trained_a"], sides["trained_b"]
    return {**sides, "trained": first.trained}
