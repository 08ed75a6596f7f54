"""The settings of a recording."""

from dataclasses import dataclass
from typing import Annotated

from infoflow.foundation import Count, Limits, UserError, check_settings

from ._rules import Rule, quadrature

_LATER = {"lags": 0, "tolerance": 0.0, "max_splits": 32}
"""Settings that came later, as they were before they came."""


Panels = Annotated[int, Limits(at_least=1, at_most=4096)]
"""Panels of the rule on one chord."""
Windows = Annotated[int, Limits(at_least=1, at_most=10**6)]
"""Rows over time, each the sum of consecutive chords."""
Lags = Annotated[int, Limits(at_least=0, at_most=1000)]
"""Chords before and after, over which movement is set against gradients."""
Tolerance = Annotated[float, Limits(at_least=0, at_most=100)]
"""The residual on a chord, in nats, above which panels double; 0: never."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordConfig:
    """How loss changes are allocated while a model trains."""

    rule: Rule = "trapezoid"  # costs what first order costs and was 70 times more accurate
    splits: Panels = 1  # panels of the rule on each chord
    tolerance: Tolerance = 0.0  # above 0, in nats: Simpson's panels double while a residual on the chord is above it
    max_splits: Panels = 32  # panels at which to stop doubling
    every: Count = 1  # updates per chord; above 1 the counts of hurting steps are those of chords
    windows: Windows = 200  # at most this many rows over time; a window adds up consecutive chords
    parameters: bool = True  # statistics of single parameters, for the first set: 8 numbers each, and 2 with parts
    check_rules: bool = True  # one more gradient per window, which says how far other rules would be off
    lags: Lags = 0  # movement against gradients up to so many chords away; 2 copies of the weights each
    separate_bias: bool = False  # biases in components of their own instead of with their matrices

    def __post_init__(self) -> None:
        check_settings(self, "dynamics")
        rule = quadrature(self.rule, self.splits)
        if self.lags and not (rule.first or rule.last):
            raise UserError(
                "dynamics.lags above 0 needs a rule that looks at the ends of chords: first-order, trapezoid or "
                f"simpson. Got lags {self.lags} and {self.rule}."
            )
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

    @property
    def untold(self) -> frozenset[str]:
        """Later settings that are as they were before: no part of what tells one recording from another."""
        return frozenset(name for name, value in _LATER.items() if getattr(self, name) == value)
