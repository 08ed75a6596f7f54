"""A published claim as an executable check: its conditions, the verdict on their numbers, and its controls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infoflow.foundation import Interval, bounded_interval
from infoflow.results import Samples, Spec

from ._interval import ResampledRows, Spread
from ._table import Reading, untrained

Verdict = Literal["holds", "fails", "undetermined", "not testable here"]
"""Possible verdicts on a claim."""
UNTESTABLE: Verdict = "not testable here"

SHARE = (0.0, 1.0)
"""The range of a share, for `Condition.bounds`."""
MOST_THINGS = 10_000
"""The largest number of items that is ever reported as needed."""
GAIN = (-1.0, 1.0)
"""The range of a difference of shares."""
CORRELATION = (-1.0, 1.0)
"""The range of a correlation, for `Condition.bounds`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Condition:
    """A statement that `values` lie beyond `threshold`, in all columns or in any of them.

    The rows are the estimate, each seed, and draws of other seeds and sentences. The columns are the items about which
    the claim makes its statement, usually layers.
    """

    name: str
    values: np.ndarray
    labels: Sequence[str]  # label of each column
    threshold: float
    unit: str
    side: Literal["above", "below"] = "above"
    over: Literal["all", "any"] = "all"
    bounds: tuple[float, float] | None = None  # range of the values and hence of the interval ends
    alone: bool = True  # whether a control that meets only this condition shows the claim; False for an absence
    of: int = 0  # values are shares of this many things in each seed, such as heads; 0: not counted
    step: float = 0.0  # resolution of the values: the interval extends at least this far each way
    reach: tuple[float, float] = (0.0, 0.0)
    """How far below and above the values the truth may lie, if the values come from times that are only bounds.

    NaN means no limit; nothing is decided on that side.
    """
    published: float = np.nan  # the source's value for the deciding column; NaN: none

    def __post_init__(self) -> None:
        assert self.values.shape == (len(self.values), len(self.labels)), (self.name, self.values.shape)

    @property
    def counted(self) -> str:
        """What is counted, if the values are shares: `heads` for the unit `share of heads`."""
        return self.unit.removeprefix("share of ")

    @property
    def oriented(self) -> np.ndarray:
        """Signed distance of the values from the threshold, positive on the side that the claim states."""
        return (self.values - self.threshold) * (1 if self.side == "above" else -1)

    def met(self) -> np.ndarray:
        """For each row, whether the condition is met, ignoring intervals."""
        beyond = self.oriented > 0
        return beyond.all(axis=1) if self.over == "all" else beyond.any(axis=1)

    def deciding_column(self) -> int:
        """The weakest column of a condition on all, or the strongest of a condition on any, by the estimate."""
        estimate = self.oriented[0]
        if np.isnan(estimate).all():
            return 0
        return int(np.nanargmin(estimate) if self.over == "all" else np.nanargmax(estimate))


def exceeds(
    name: str, values: np.ndarray, threshold: float, unit: str, labels: Sequence[str] = ("",), **how: Any
) -> Condition:
    """State that `values` lie above `threshold`; a single column needs no label."""
    return Condition(name=name, values=values, labels=labels, threshold=threshold, unit=unit, **how)


def stays_below(
    name: str, values: np.ndarray, threshold: float, unit: str, labels: Sequence[str] = ("",), **how: Any
) -> Condition:
    return exceeds(name, values, threshold, unit, labels, side="below", **how)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    condition: Condition
    column: int
    effect: float
    low: float
    high: float
    effects: list[float]
    verdict: Verdict
    covers_seeds: bool
    seed_error: float  # standard error from the choice of seeds; NaN if unknown
    sentence_error: float  # standard error from the sentences, beyond what the spread over seeds contains

    @property
    def bounded(self) -> bool:
        """Whether the effect is only a bound on the true one."""
        return any(part != 0 for part in self.condition.reach)

    @property
    def strength(self) -> tuple[int, float]:
        """Sort key of a claim's conditions: the first one decides the claim."""
        order: dict[Verdict, int] = {"fails": 0, "undetermined": 1, "holds": 2}
        margin = abs(self.effect - self.condition.threshold) * (1 if self.condition.met()[0] else -1)
        width = max(self.high - self.low, 1e-12)
        return order[self.verdict], float(np.nan_to_num(margin / width, nan=0.0))

    def __str__(self) -> str:
        condition = self.condition
        needed = f"needed {'>' if condition.side == 'above' else '<'} {short(condition.threshold)}"
        if np.isnan(self.effect):
            return f"{condition.name}: undefined; {needed}"
        where = f" at {condition.labels[self.column]}" if len(condition.labels) > 1 else ""
        numbers = f"{short(self.effect)} ({short(self.low)} to {short(self.high)}) {condition.unit}"
        bound = f" ({_bound_text(condition.reach)})" if self.bounded else ""
        return f"{condition.name}: {numbers}{where}{bound}; {needed}"


def _bound_text(reach: tuple[float, float]) -> str:
    """On which side of the bound the truth may lie."""
    ends = {"lower": reach[0], "higher": reach[1]}
    sides = [f"{end}{'' if np.isnan(part) else f' by up to {short(part)}'}" for end, part in ends.items() if part != 0]
    return (
        f"the truth may lie {' or '.join(sides)}: it is only a bound, since a change behind it began before the first "
        "checkpoint, was not over at the last, or has too few checkpoints around it"
    )


def judge(condition: Condition, spread: Spread, num_tests: int) -> Outcome:
    r"""Return the interval of the weakest (or strongest) column, with the verdict.

    A claim on all columns is a claim on $\min_j m_j$. Its interval runs from $\min_j$ of the columns' lower ends (an
    intersection-union test: no correction is needed, since every column must pass) to the upper end of the column with
    the weakest estimate. That end is at the quantile of the largest of $n$ variables (`largest_t`), so that one unlucky
    layer among many does not refute the claim. $n$ counts the columns that may be the weakest according to their
    intervals, and is at least `num_tests`, the number of ways in which the whole claim can fail. A claim on any column
    is the mirror image. The distribution of the minimum itself is not used, because noise biases a minimum downwards,
    in the estimate and again in every draw.

    The interval of a share of counted items is at least Wilson's for as many independent items, because seeds that all
    agree, as at 0 of 48 heads, have no spread. Other numbers with two bounds get Wilson's interval for the sample size
    that matches their spread, where it reaches further. Values read off a grid (checkpoints) may agree exactly, so
    their interval extends at least one step to either side. If times are only bounds, the interval extends as far as
    the truth may lie; without such a limit, nothing is decided on that side.
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
    elif condition.bounds is not None and not condition.step:
        ends = _inside(condition.bounds, effect, ends)
    if condition.step and not np.isnan(ends).any():
        ends = list(Interval(*ends).reaching(effect, condition.step))
    down, up = np.nan_to_num(condition.reach)
    ends = [ends[0] - down, ends[1] + up]
    if condition.bounds is not None:
        ends = [float(np.clip(end, *condition.bounds)) for end in ends]
    low, high = sorted(flip * (end - condition.threshold) for end in ends)
    wrong, right = np.isnan(condition.reach)[::flip]  # whether the truth may lie anywhere against or for the claim
    return Outcome(
        condition=condition,
        column=column,
        effect=effect,
        low=ends[0],
        high=ends[1],
        effects=[float(value) for value in condition.values[spread.rows.seeds, column]],
        verdict="holds" if low > 0 and not wrong else "fails" if high < 0 and not right else "undetermined",
        covers_seeds=spread.seeds is not None,
        seed_error=spread.seed_error(column),
        sentence_error=spread.sentence_error(column),
    )


def _inside(bounds: tuple[float, float], effect: float, ends: list[float]) -> list[float]:
    """Extend the interval inwards near a bound, as far as Wilson's interval if that reaches farther."""
    wilsons = [bounded_interval(effect, abs(end - effect), bounds)[index] for index, end in enumerate(ends)]
    return [float(np.fmin(ends[0], wilsons[0])), float(np.fmax(ends[1], wilsons[1]))]


def judge_all(conditions: Sequence[Condition], rows: ResampledRows) -> list[Outcome]:
    """Judge the conditions of one claim together, because each condition that is not clearly met may fail by chance."""
    spreads = [Spread.of(condition.oriented, rows) for condition in conditions]
    num_tests = sum(_chances(*pair) for pair in zip(conditions, spreads, strict=True))
    return [judge(condition, spread, num_tests) for condition, spread in zip(conditions, spreads, strict=True)]


def wilson(share: float, num: int) -> tuple[float, float]:
    """Wilson 95 % interval of a proportion observed in `num` trials."""
    share, z2 = min(max(share, 0.0), 1.0), 1.959964**2 / num  # rounding may exceed 0 to 1
    middle, half = share + z2 / 2, np.sqrt(z2 * share * (1 - share) + z2**2 / 4)
    return float((middle - half) / (1 + z2)), float((middle + half) / (1 + z2))


def _chances(condition: Condition, spread: Spread) -> int:
    """Number of columns that are not clearly beyond the threshold; at most one for a claim on any column."""
    clear = spread.ends()[0] > 0
    return int((~clear).sum()) if condition.over == "all" else int(not clear.any())


def short(number: float) -> str:
    return "undefined" if np.isnan(number) else f"{number:.3g}"


Curves = Mapping[str, np.ndarray]
"""Rows of curves (N, K), by the name of their reading."""
Test = Callable[[Curves], list[Condition]]
Hinders = Callable[[Curves, Verdict], str | None]
"""Maps the estimates and the verdict to the reason why they cannot support it, or None."""


@dataclass(frozen=True, slots=True)
class Control:
    """The test of a claim on other curves, in which the effect should not appear.

    If a control shows the effect, a claim that would hold becomes undetermined. A `transform` turns the curves into one
    or many replicas of a null. The replica at the 95th percentile counts; it shows the effect if it meets every
    condition, or only the deciding one. `replicas` makes weighted replicas from each seed's numbers (`seeds_alone`,
    `layers_in_any_order`), which show the effect if they meet every condition, and the deciding one at least as clearly
    as the claim does. A control that is not `decisive` is reported but does not affect the verdict.
    """

    name: str
    reads: Mapping[str, Reading]
    transform: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    replicas: Callable[[Mapping[str, Samples]], Iterable[tuple[dict[str, np.ndarray], float]]] | None = None
    decisive: bool = True
    permuted: tuple[str, Callable[[Curves], int]] | None = None
    """For a `transform` that permutes: the name of the permuted items, and a function that counts them in the curves.

    A permutation then shows the effect only if its deciding condition is at least as strong as the claim's own.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Required agreement between two halves of the data: their correlation, in every seed and for every reading."""

    reads: Mapping[str, Reading]
    least: float
    of: str  # name of the correlated numbers


NO_CAUSE = (
    "No cause was found: with fixed positions, 1,000 clusters, a last norm without gain and bias, or ten million "
    "tokens, the claim still did not hold."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A claim with its source, test and controls, declared by `claim` and found by the registry."""

    id: str  # SECTION:NUMBER, such as representations:V-1
    claim: str
    source: str
    published: str  # the source's numbers
    statistic: str  # the test in words
    reads: Mapping[str, Reading]
    test: Test
    controls: tuple[Control, ...]
    learned: tuple[Spec, ...]  # objectives whose models must have learned their task; (): none must
    hinders: Hinders | None = None  # gives the reason why the numbers cannot support a verdict
    given: "Given | None" = None  # how the claim is judged on models that no study trained; None: not at all
    minimum_seeds: int = 3  # 1 for a claim about single models, which involves no difference between models
    reliable: Agreement | None = None  # required for a verdict, since chance numbers do not agree
    uncontrolled: str = ""  # why no control could show the claim, so that only the interval decides
    another: "Another | None" = None  # a second estimate of the quantity that the claim is about
    cause: str = ""  # why the claim failed in our experiments, as far as we found out
    examined: str = ""  # the folder of `experiments/studies` that shows this cause

    def conditions(self, curves: Curves) -> list[Condition]:
        """The claim's conditions on rows of curves; a ratio to zero is infinite or undefined and decides nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.test(curves)

    @property
    def source_read(self) -> str:
        """How much of the source was read (`SourceRead`); empty if there is no source or no record."""
        return getattr(self.source, "read", "")

    @property
    def known_cause(self) -> str:
        """Why the claim failed in our experiments, and the folder that shows the cause; empty: not examined."""
        return f"{self.cause} See experiments/studies/{self.examined}." if self.cause else ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the claim reads, in order of first use; task scores last."""
        readings = [*self.reads.values(), *(r for control in self.controls for r in control.reads.values())]
        readings += self.reliable.reads.values() if self.reliable else ()
        return tuple(dict.fromkeys([*(table for reading in readings for table in reading.sources), "task_scores"]))

    @property
    def all_tables(self) -> tuple[str, ...]:
        """The tables that the claim reads, including those of its other estimate, which a run need not have."""
        other = self.another.finding.tables if self.another else ()
        return tuple(dict.fromkeys([*other, *self.tables]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Another:
    """The same claim judged by another estimate, and readings of both estimates at a point where the truth is known.

    The readings in `known` and `own_known` have two numbers: the estimate and the truth.
    """

    name: str
    own_name: str  # name of the claim's own estimate
    finding: Finding
    known: Mapping[str, Reading]
    own_known: Mapping[str, Reading]


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """How a claim about single models is judged on a pretrained or external model.

    The claim's readings name one objective, and the model is treated as if it had been trained on it.
    """

    tasks: tuple[str, ...] = ()  # kinds of models that it applies to: "encoder", "causal-lm", ...; (): all
    finding: Finding | None = None  # the claim's version for one model if it reads several models; None: unchanged


def claim(
    id: str,
    claim: str,
    *,
    source: str,
    published: str,
    statistic: str,
    reads: Mapping[str, Reading],
    learned: tuple[Spec, ...] | None = None,
    controls: tuple[Control, ...] | None = None,
    **further: Any,
) -> Callable[[Test], Finding]:
    """Declare a claim whose conditions the decorated function states; `further` sets other fields of `Finding`.

    By default, the models of all objectives in `reads` must have learned their task, a claim that is also judged on
    external models needs only one seed, and the only control is the same readings of untrained models.
    """
    if learned is None:
        tables = [table for reading in reads.values() for table in reading.tables]
        learned = tuple(dict.fromkeys(one for table in tables for one in (table.objective, table.other) if one))
    if "given" in further:
        further.setdefault("minimum_seeds", 1)
    if controls is None:
        objectives = {table.objective for reading in reads.values() for table in reading.tables}
        name = f"untrained model{'s' * (len(objectives) > 1)}"
        controls = (Control(name, untrained(reads)),)

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
