"""A published claim as an executable check."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.results import Samples, Spec

from ._condition import Condition, Verdict
from ._table import Reading

Curves = Mapping[str, np.ndarray]
"""Rows of curves (N, K), by the name of their reading."""
Test = Callable[[Curves], list[Condition]]
Hinders = Callable[[Curves, Verdict], str | None]
"""Maps the estimates and the verdict to the reason why they cannot support it, or None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """The same test on other curves, where the claim should not show.

    `transform` turns those curves into one or many replicas of a null; of many, the strongest of the weakest 95 %
    counts. If a control meets every condition, or the deciding one by itself, a claim that holds becomes undetermined.
    `replicas` makes replicas from each seed's numbers, with weights (`seeds_alone`, `layers_in_any_order`): they must
    meet every condition, and the deciding one at least as clearly as the claim. A control that is not `decisive` is
    reported but decides nothing.
    """

    name: str
    reads: Mapping[str, Reading]
    transform: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    replicas: Callable[[Mapping[str, Samples]], Iterable[tuple[dict[str, np.ndarray], float]]] | None = None
    decisive: bool = True
    permuted: tuple[str, Callable[[Curves], int]] | None = None
    """For a `transform` that permutes: the permuted things, and how many of them the claim's curves have.

    An order then counts only if the deciding condition is at least as strong as in the claim's own.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Required agreement between two halves of the data: their correlation, in every seed and for every reading."""

    reads: Mapping[str, Reading]
    least: float
    of: str  # name of the correlated numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A claim with its source, test and controls, declared by `claim` and found by the registry."""

    id: str  # room:number, as in the published list
    claim: str
    source: str
    published: str  # the source's numbers
    statistic: str  # the test in words
    reads: Mapping[str, Reading]
    test: Test
    controls: tuple[Control, ...]
    learned: tuple[Spec, ...]  # objectives whose models must have learned their task; (): none must
    hinders: Hinders | None = None  # a condition of the comparison that tables may show to be violated
    given: "Given | None" = None  # how it is judged on models that no study trained; None: not at all
    minimum_seeds: int = 3  # 1 for a claim about each model by itself, which involves no difference between models
    reliable: Agreement | None = None  # required for a verdict: chance numbers do not agree
    uncontrolled: str = ""  # why no control could show it, so that only the interval decides
    another: "Another | None" = None  # a second estimate of what it is about

    def conditions(self, curves: Curves) -> list[Condition]:
        """The claim's conditions on rows of curves; a ratio to zero is infinite or undefined and decides nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.test(curves)

    @property
    def source_read(self) -> str:
        """How much of the source was read (`SourceRead`); empty if there is no source or no record."""
        return getattr(self.source, "read", "")

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the claim reads, in order of first use; task scores last."""
        readings = [*self.reads.values(), *(r for control in self.controls for r in control.reads.values())]
        readings += self.reliable.reads.values() if self.reliable else ()
        return tuple(dict.fromkeys([*(table for reading in readings for table in reading.sources), "task_scores"]))

    @property
    def all_tables(self) -> tuple[str, ...]:
        """Also those of its other estimate, which a run need not have."""
        other = self.another.finding.tables if self.another else ()
        return tuple(dict.fromkeys([*other, *self.tables]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Another:
    """The same claim by another estimate, and what both estimates give where the truth is known.

    Readings of known values have two numbers, the value and the truth.
    """

    name: str
    own_name: str  # of the claim's own estimate
    finding: Finding
    known: Mapping[str, Reading]
    own_known: Mapping[str, Reading]


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """How a claim about each model by itself is judged on a pretrained or external model.

    Its readings name one objective and treat the model as one of it.
    """

    tasks: tuple[str, ...] = ()  # kinds of models that it applies to: "encoder", "causal-lm", ...; (): all
    finding: Finding | None = None  # version for one model if the claim reads several; None: unchanged


def claim(
    id: str,
    claim: str,
    *,
    source: str,
    published: str,
    statistic: str,
    reads: Mapping[str, Reading],
    controls: tuple[Control, ...],
    learned: tuple[Spec, ...],
    **further: Any,
) -> Callable[[Test], Finding]:
    """Declare a claim whose conditions the decorated function states; `further` are other fields of `Finding`."""

    def declared(test: Test) -> Finding:
        return Finding(
            id=id,
            claim=claim,
            source=source,
            published=published,
            statistic=statistic,
            reads=reads,
            test=test,
            controls=controls,
            learned=learned,
            **further,
        )

    return declared


def several(num_seeds: int) -> str:
    return "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
