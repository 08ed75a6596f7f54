"""The settings of a recording."""

from dataclasses import dataclass
from typing import Annotated

from infoflow.foundation import Count, Limits, UserError, check_settings

from ._rules import Rule, quadrature

_LATER = {"tolerance": 0.0, "max_splits": 32}
"""Settings added later, with their earlier implicit values."""


Panels = Annotated[int, Limits(at_least=1, at_most=4096)]
"""Panels of the rule per chord."""
Windows = Annotated[int, Limits(at_least=1, at_most=10**6)]
"""Rows over time, each the sum of consecutive chords."""
Tolerance = Annotated[float, Limits(at_least=0, at_most=100)]
"""The residual per chord, in nats, above which panels are doubled; 0: never."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordSettings:
    """How loss changes are allocated during training: the settings of a plan."""

    rule: Rule = "trapezoid"  # costs the same as first order and was 70 times more accurate
    splits: Panels = 1  # panels of the rule per chord
    tolerance: Tolerance = 0.0  # in nats; above 0, Simpson's panels double while a residual exceeds it
    max_splits: Panels = 32  # panels at which to stop doubling
    every: Count = 1  # updates per chord; above 1 hurting steps are counted in chords
    windows: Windows = 200  # maximum number of rows over time; each sums consecutive chords

    def __post_init__(self) -> None:
        check_settings(self, "dynamics")
        quadrature(self.rule, self.splits)
        if self.tolerance and self.rule != "simpson":
            raise UserError(
                "dynamics.tolerance above 0 needs the rule simpson, whose panels can double. Got tolerance "
                f"{self.tolerance} and {self.rule}. Leave the tolerance out, or set dynamics.rule to simpson."
            )
        if self.tolerance and self.splits > self.max_splits:
            raise UserError(
                "dynamics.max_splits must be at least dynamics.splits. Got "
                f"{self.max_splits} and {self.splits}. Raise the one or lower the other."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordConfig(RecordSettings):
    """How loss changes are allocated during training."""

    parameters: bool = True  # statistics of single parameters, for the first set: 8 numbers each, and 2 more with parts
    check_rules: bool = True  # one more gradient per window, to measure the error of other rules
    separate_bias: bool = False  # biases as separate components instead of with their matrices

    @property
    def untold(self) -> frozenset[str]:
        """Later settings at their earlier values, which are left out of a recording's key."""
        return frozenset(name for name, value in _LATER.items() if getattr(self, name) == value)
