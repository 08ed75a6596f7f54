"""The settings of a recording."""

from dataclasses import dataclass

from infoflow.foundation import UserError

from ._rules import Rule, quadrature

_LATER = {"lags": 0, "tolerance": 0.0, "max_splits": 32}
"""Settings that came later, as they were before they came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordConfig:
    """How loss changes are allocated while a model trains."""

    rule: Rule = "trapezoid"  # costs what first order costs and was 70 times more accurate
    splits: int = 1  # panels of the rule on each chord
    tolerance: float = 0.0  # above 0, in nats: Simpson's panels double while a set's residual on the chord is above it
    max_splits: int = 32  # panels at which to stop doubling
    every: int = 1  # updates per chord; above 1 the counts of hurting steps are those of chords
    windows: int = 200  # at most this many rows over time; a window adds up consecutive chords
    parameters: bool = True  # statistics of single parameters, for the first set: 8 numbers each, and 2 with parts
    check_rules: bool = True  # one more gradient per window, which says how far other rules would be off
    lags: int = 0  # movement against gradients up to so many chords away; 2 copies of the weights each
    separate_bias: bool = False  # biases in components of their own instead of with their matrices

    def __post_init__(self) -> None:
        rule = quadrature(self.rule, self.splits)
        for name in ("every", "windows"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1. Got {getattr(self, name)}.")
        if self.lags < 0 or (self.lags and not (rule.first or rule.last)):
            raise UserError(
                "lags must be at least 0, and above 0 the rule must look at the ends of chords (first-order, "
                f"trapezoid, simpson). Got lags={self.lags} and {self.rule}."
            )
        if self.tolerance < 0 or (self.tolerance and self.rule != "simpson"):
            raise UserError(
                'tolerance must be at least 0, and above 0 the rule must be "simpson", whose panels can double. Got '
                f"tolerance={self.tolerance} and {self.rule}."
            )
        if self.tolerance and self.splits > self.max_splits:
            raise UserError(f"max_splits must be at least splits. Got {self.max_splits} and {self.splits}.")

    @property
    def untold(self) -> frozenset[str]:
        """Later settings that are as they were before: no part of what tells one recording from another."""
        return frozenset(name for name, value in _LATER.items() if getattr(self, name) == value)
