"""A published claim as an executable check."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from infoflow.results import Spec

from ._condition import Condition, Verdict
from ._estimates import Estimates
from ._table import Reading

Curves = Mapping[str, np.ndarray]
"""Rows of curves (N, K), by the name of their reading."""
Test = Callable[[Curves], list[Condition]]
Hinders = Callable[[Curves, Verdict], str | None]
"""Of the estimates and the verdict that they would give: why they cannot give it, if so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Where the claim should not show: the same test on other curves.

    `transform` turns those curves into one or many replicas of a null; of many, the strongest of the weakest 95 %
    counts. A control that meets every condition, or the one that decides the verdict by itself, leaves a claim that
    holds undetermined. `replicas` makes them of each seed's numbers, with weights (`seeds_alone`,
    `layers_in_any_order`): they must meet every condition, the deciding one by no less than the claim. A control that
    is not `decisive` is reported and decides nothing.
    """

    name: str
    reads: Mapping[str, Reading]
    transform: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    replicas: Callable[[Mapping[str, Estimates]], Iterable[tuple[dict[str, np.ndarray], float]]] | None = None
    decisive: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far a claim's numbers must agree with themselves: the correlation of two halves of the data, in every seed
    and for every reading."""

    reads: Mapping[str, Reading]
    least: float
    of: str  # what is correlated


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A claim, its source, its test and its controls. One file in `claims` each; the registry finds it."""

    id: str  # room:number, as in the published list
    claim: str
    source: str
    published: str  # the source's numbers
    statistic: str  # the test in words
    reads: Mapping[str, Reading]
    test: Test
    controls: tuple[Control, ...]
    learned: tuple[Spec, ...]  # objectives whose models must have learned their task; (): none must
    hinders: Hinders | None = None  # a condition of the comparison that tables may show not to be met
    given: "Given | None" = None  # how it is judged on a model that no study trained; None: not at all
    minimum_seeds: int = 3  # 1 for a claim about each model by itself: nothing in it is a difference between models
    reliable: Agreement | None = None  # without it no verdict: numbers of chance have none
    uncontrolled: str = ""  # why no control could show it: the interval alone decides

    def conditions(self, curves: Curves) -> list[Condition]:
        """The claim's conditions on rows of curves; a ratio to zero is infinite or undefined and decides nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.test(curves)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are read, in order of first use; task scores last."""
        readings = [*self.reads.values(), *(r for control in self.controls for r in control.reads.values())]
        readings += self.reliable.reads.values() if self.reliable else ()
        return tuple(dict.fromkeys([*(table for reading in readings for table in reading.sources), "task_scores"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """How a claim about each model by itself is judged on a model that was given.

    Its readings are of one objective, and take the model for one of it.
    """

    tasks: tuple[str, ...] = ()  # of models that it can be about: "encoder", "causal-lm", ...; (): all
    finding: Finding | None = None  # the claim on one model, where it reads several; None: as it stands


@dataclass(frozen=True, kw_only=True, slots=True)
class Untested:
    """A published claim that no run can test yet: it is in the table of findings, with the reason."""

    id: str
    claim: str
    source: str
    published: str
    why: str  # what it would take

    @property
    def tables(self) -> tuple[str, ...]:
        return ()


def several(num_seeds: int) -> str:
    return "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
