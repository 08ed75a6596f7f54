"""One condition of a claim, and what its numbers say about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infoflow.foundation import Interval

from ._interval import Spread
from ._resampled import ResampledRows

Verdict = Literal["holds", "fails", "undetermined", "not testable here"]
"""What a claim can come to."""
UNTESTABLE: Verdict = "not testable here"

SHARE = (0.0, 1.0)
"""The range of a share, for `Condition.limits`."""
CORRELATION = (-1.0, 1.0)
"""The range of a correlation, for `Condition.limits`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Condition:
    """A claim says: `values` lie beyond `threshold`, all of them or any of them.

    Rows are the estimate, each seed, and what other seeds and sentences might have given; columns are
    what the claim quantifies over, usually layers.
    """

    name: str
    values: np.ndarray
    labels: Sequence[str]  # what each column is
    threshold: float
    unit: str
    side: Literal["above", "below"] = "above"
    over: Literal["all", "any"] = "all"
    bounds: tuple[float, float] | None = None  # where values lie: so do the ends of the interval
    alone: bool = (
        True  # whether a control that meets just this condition shows the claim: not if it says what is absent
    )
    of: int = 0  # values are shares of so many things in each seed, such as heads; 0: of something that has no number
    step: float = 0.0  # how far apart the values lie that can be read at all: no interval is narrower than one each way
    published: float = np.nan  # what the source's numbers give for the deciding column; NaN: it gives none

    def __post_init__(self) -> None:
        assert self.values.shape == (len(self.values), len(self.labels)), (self.name, self.values.shape)

    @property
    def oriented(self) -> np.ndarray:
        """Values and threshold's distance, positive where the claim is right."""
        return (self.values - self.threshold) * (1 if self.side == "above" else -1)

    def met(self) -> np.ndarray:
        """For each row, whether the condition is met, intervals aside."""
        beyond = self.oriented > 0
        return beyond.all(axis=1) if self.over == "all" else beyond.any(axis=1)

    def deciding_column(self) -> int:
        """The weakest column of a condition on all, the strongest of a condition on any; by the estimate."""
        estimate = self.oriented[0]
        if np.isnan(estimate).all():
            return 0
        return int(np.nanargmin(estimate) if self.over == "all" else np.nanargmax(estimate))


def exceeds(
    name: str, values: np.ndarray, threshold: float, unit: str, labels: Sequence[str] = ("",), **how: Any
) -> Condition:
    """A claim says that `values` lie above `threshold`; of one column no label is needed."""
    return Condition(name=name, values=values, labels=labels, threshold=threshold, unit=unit, **how)


def stays_below(
    name: str, values: np.ndarray, threshold: float, unit: str, labels: Sequence[str] = ("",), **how: Any
) -> Condition:
    """A claim says that `values` lie below `threshold`."""
    return exceeds(name, values, threshold, unit, labels, side="below", **how)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    """A condition with its interval and verdict."""

    condition: Condition
    column: int
    effect: float
    low: float
    high: float
    effects: list[float]
    verdict: Verdict
    covers_seeds: bool
    seed_error: float  # standard error by the choice of seeds; NaN where it is not known
    sentence_error: float  # by that of sentences, beyond what the spread over seeds holds

    @property
    def strength(self) -> tuple[int, float]:
        """Sorts the conditions of a claim: the first decides it."""
        order: dict[Verdict, int] = {"fails": 0, "undetermined": 1, "holds": 2}
        margin = abs(self.effect - self.condition.threshold) * (1 if self.condition.met()[0] else -1)
        width = max(self.high - self.low, 1e-12)
        return order[self.verdict], float(np.nan_to_num(margin / width, nan=0.0))

    def __str__(self) -> str:
        condition = self.condition
        sign = ">" if condition.side == "above" else "<"
        where = f" at {condition.labels[self.column]}" if len(condition.labels) > 1 else ""
        numbers = f"{short(self.effect)} ({short(self.low)} to {short(self.high)}) {condition.unit}"
        return f"{condition.name}: {numbers}{where}; needed {sign} {short(condition.threshold)}"


def judge(condition: Condition, spread: Spread, num_tests: int) -> Outcome:
    r"""The interval of the weakest (or strongest) column, and the verdict.

    A claim on all columns is a claim on $\min_j m_j$. Its interval runs from $\min_j$ of the columns' lower ends (an
    intersection-union test: no correction is needed, since every column must pass) to the upper end of the column that
    is weakest by the estimate, at the quantile of the largest of $n$ (`largest_t`: one unlucky layer among many must
    not refute it). $n$ counts the columns that may be the weakest, as far as their intervals tell, and is at least
    `num_tests`, the number of chances the whole claim has to fail. A claim on any column is the mirror image.

    The distribution of the minimum itself is not used: noise pulls a minimum down, in the estimate and again in every
    draw. A share of counted things is no surer than as many independent ones would make it (Wilson's interval): where
    all seeds agree, as at 0 of 48 heads, their spread says nothing. Nor does it of values that are read off a grid
    (checkpoints) and agree to the step: the interval then runs a step to either side.
    """
    column = condition.deciding_column()
    lows, highs = spread.ends()
    if condition.over == "all":
        rivals = max(int((lows <= highs[column]).sum()), num_tests, 1)
        low, high = lows.min(), spread.ends(rivals)[1][column]
    else:
        rivals = max(int((highs >= lows[column]).sum()), int((highs >= 0).sum()), 1)
        low, high = spread.ends(rivals)[0][column], spread.ends(max(num_tests, 1))[1].max()
    flip = 1 if condition.side == "above" else -1
    effect = float(condition.values[0, column])
    ends = sorted((float(flip * low + condition.threshold), float(flip * high + condition.threshold)))
    if condition.of:
        counted = wilson(effect, condition.of * spread.rows.num_seeds)
        ends = [min(ends[0], counted[0]), max(ends[1], counted[1])]
    if condition.step and not np.isnan(ends).any():
        ends = list(Interval(*ends).reaching(effect, condition.step))
    if condition.bounds is not None:
        ends = [float(np.clip(end, *condition.bounds)) for end in ends]
    low, high = sorted(flip * (end - condition.threshold) for end in ends)
    return Outcome(
        condition=condition,
        column=column,
        effect=effect,
        low=ends[0],
        high=ends[1],
        effects=[float(value) for value in condition.values[spread.rows.seeds, column]],
        verdict="holds" if low > 0 else "fails" if high < 0 else "undetermined",
        covers_seeds=spread.seeds is not None,
        seed_error=spread.seed_error(column),
        sentence_error=spread.sentence_error(column),
    )


def judge_all(conditions: Sequence[Condition], rows: ResampledRows) -> list[Outcome]:
    """Judge the conditions of one claim together: what none of them clearly meets is a chance to fail by accident."""
    spreads = [Spread.of(condition.oriented, rows) for condition in conditions]
    num_tests = sum(_chances(*pair) for pair in zip(conditions, spreads, strict=True))
    return [judge(condition, spread, num_tests) for condition, spread in zip(conditions, spreads, strict=True)]


def wilson(share: float, num: int) -> tuple[float, float]:
    """95 % interval of a probability of which `num` trials showed a share."""
    z2 = 1.959964**2 / num
    middle, half = share + z2 / 2, np.sqrt(z2 * share * (1 - share) + z2**2 / 4)
    return float((middle - half) / (1 + z2)), float((middle + half) / (1 + z2))


def _chances(condition: Condition, spread: Spread) -> int:
    """How many columns are not clearly beyond the threshold; of a claim on any column at most one counts."""
    clear = spread.ends()[0] > 0
    return int((~clear).sum()) if condition.over == "all" else int(not clear.any())


def short(number: float) -> str:
    return "undefined" if np.isnan(number) else f"{number:.3g}"
