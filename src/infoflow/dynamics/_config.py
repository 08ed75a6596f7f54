"""The settings of a recording."""

from dataclasses import dataclass

from infoflow.foundation import UserError

from ._rules import Rule, quadrature


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordConfig:
    """How loss changes are allocated while a model trains."""

    rule: Rule = "trapezoid"  # costs what first order costs and was 70 times more accurate
    splits: int = 1  # panels of the rule on each chord
    every: int = 1  # updates per chord; above 1 the counts of hurting steps are those of chords
    windows: int = 200  # at most this many rows over time; a window adds up consecutive chords
    parameters: bool = True  # statistics of single parameters, for the first set: 5 numbers each, and 2 with parts
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
