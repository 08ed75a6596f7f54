"""Reasons for no verdict (too few runs, unlearned tasks, moving estimates), and how many seeds would decide a claim."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import factorial
from typing import Literal

import pandas as pd

from infoflow.foundation import NUM_REPLICATES, Interval, sentence_df, t_quantile
from infoflow.objectives import Metric, further_objectives, metrics_of
from infoflow.results import RETRIEVAL_SCORES, Spec

from ._finding import MOST_THINGS, Condition, Finding, Outcome, short, wilson
from ._model_group import Absent, Ambiguous, ModelGroup
from ._table import Reading, gather

# Cases with too few runs, heads or tasks for any verdict.
#
# A share of few items has a wide interval even if all items agree, and so has a value read off few checkpoints. Such an
# interval always includes the threshold. Likewise, few layers are often in the claimed order by chance.

Side = Literal["hold", "fail"]


@dataclass(frozen=True, slots=True)
class TooFew:
    """A verdict that these measurements cannot give, and how many items it would need."""

    to: Side
    what: str  # what is too few
    least: int | None  # how many are needed; None: no number suffices
    there: int
    seeds: int = 1  # the units over which they are counted

    def __str__(self) -> str:
        needed = f"it needs at least {self.least}" if self.least else f"no number up to {MOST_THINGS:,} would do"
        counted = f" in {self.seeds} seeds" if 1 < self.seeds < self.there else ""
        there = f"there {'is' if self.there == 1 else 'are'} {self.there}{counted}"
        return f"too few {self.what}: to {self.to} {needed}{' of them' if counted else ''}, and {there}"


def too_few(outcomes: Iterable[Outcome], num_seeds: int) -> list[TooFew]:
    """The conditions with too few items for the claim to hold, or to fail, whatever their numbers are.

    A claim holds if all of its conditions hold, and fails if any of them fails.
    """
    conditions = [outcome.condition for outcome in outcomes]
    failing = [_short_of(one, "fail", num_seeds) for one in conditions]
    found = [_short_of(one, "hold", num_seeds) for one in conditions] + (failing[:1] if all(failing) else [])
    return [few for few in found if few]


def too_few_orders(what: str, there: int, level: float) -> TooFew | None:
    """What is missing if `there` items have so few orders that chance gives the claimed one more often than `level`."""
    least = next(number for number in range(1, 100) if 1 / factorial(number) <= level)
    return TooFew("hold", what, least, there) if there < least else None


def _short_of(condition: Condition, to: Side, num_seeds: int) -> TooFew | None:
    """Why a condition cannot be clearly met (`to` is "hold") or clearly missed ("fail")."""
    upwards = (condition.side == "above") == (to == "hold")
    if condition.of:
        there, best = condition.of * num_seeds, 1.0 if upwards else 0.0
        counts = range(there, MOST_THINGS + 1)
        least = next((num for num in counts if _clear(wilson(best, num), condition.threshold, upwards)), None)
        return None if least == there else TooFew(to, condition.counted, least, there, num_seeds)
    if condition.step and condition.bounds:
        best, span = condition.bounds[upwards], condition.bounds[1] - condition.bounds[0]
        if not _clear((best - condition.step, best + condition.step), condition.threshold, upwards):
            least = int(span / abs(best - condition.threshold)) + 1
            return TooFew(to, condition.counted, least, round(span / condition.step))
    return None


def _clear(ends: tuple[float, float], threshold: float, upwards: bool) -> bool:
    return bool(ends[0] > threshold if upwards else ends[1] < threshold)


# Whether a model has learned its task, since a claim about an objective says nothing about a model that did not learn.
#
# The rule was fixed before any verdict was seen and uses only task scores, on the test split if there is one. Each
# objective declares its own rule (`metrics`); for most objectives:
#
# - the loss lies at least 10 % below that of a model that knows token frequencies and nothing else (the upper end of
#   the loss's interval below 0.9 times the unigram loss): the model uses context, beyond what a few updates teach;
# - a translation model's BLEU lies at least 10 points above that of copying the source (lower end of the interval).
#   Below about 10 points, machine translation is commonly regarded as useless. Neither a decoder that ignores the
#   source nor a copy of the source reaches 10 points.
#
# Models trained with passages are judged by the share of their own training queries that they answer: the study writes
# `learned` (1 or 0) to the table retrieval_scores, and a model without the entry counts as having learned.
#
# For replaced tokens, the area under the ROC curve must exceed a half by .1; for sentence pairs, the accuracy must
# exceed the share of the more frequent answer by .05. A distilled model is judged by its own loss on masked tokens.

_COLUMNS = ["seed", "trained", "split", "metric", "value", "low", "high", "baseline"]


def shortfall(models: ModelGroup, objective: Spec, seed: int) -> str | None:
    """Why the model of that objective and seed counts as not having learned its task, or None if it has.

    If the scores cover several corpora (a column `corpus`), there is one model for each, and all must have learned.
    """
    model = f"the model {objective.label}/seed-{seed}"
    if objective.name in further_objectives():
        return _unread(models, objective, seed, model)
    try:
        scores = models.rows("task_scores", objective, _COLUMNS)
        for corpus, own in scores.groupby("corpus", sort=False) if "corpus" in scores else [("", scores)]:
            if reason := next(_shortfalls(own[own["seed"] == seed], objective, model), None):
                return f"on {corpus}, {reason}" if corpus else reason
    except Absent as absent:
        return f"whether {model} has learned its task is not known: {absent}"
    return None


def _unread(models: ModelGroup, objective: Spec, seed: int, model: str) -> str | None:
    """Why a model that reads passages counts as not having learned to answer."""
    try:
        scores = models.rows(RETRIEVAL_SCORES.name, objective, ["seed", "metric", "value"])
    except Ambiguous as several:
        return f"whether {model} has learned its task is not known: {several}"
    except Absent:
        return None
    learned_rows = scores[(scores["seed"] == seed) & (scores["metric"] == "learned")]
    if learned_rows.empty or float(learned_rows["value"].iloc[0]) > 0.5:  # 1 or 0
        return None
    return f"{model} has not learned its task: it answers its training queries no better than by chance"


def _shortfalls(scores: pd.DataFrame, objective: Spec, model: str) -> Iterator[str]:
    for metric in metrics_of(objective.name):
        score = _score(scores, metric.name)
        if metric.learned(float(score["low"]), float(score["high"]), float(score["baseline"])):
            continue
        yield f"{model} has not learned its task: {_scored(metric, score)}, {metric.needed(float(score['baseline']))}"


def _scored(metric: Metric, score: pd.Series) -> str:
    if metric.name.startswith("loss"):
        return f"{_text(score)} nats per token of {metric.name}"
    return f"{metric.label} {_text(score)}"


def _score(scores: pd.DataFrame, metric: str) -> pd.Series:
    own = scores[scores["metric"] == metric]
    if own.empty:
        raise Absent(f"task_scores has no {metric}")
    on_test = own[own["split"] == "test"]
    return (own if on_test.empty else on_test).iloc[0]


def _text(score: pd.Series) -> str:
    return f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"


_AT_HALF = "at_half"  # column with the number measured on half of the sentences


def unsettled(finding: Finding, models: ModelGroup, seeds: set[int], outcomes: list[Outcome], index: int) -> str | None:
    """Why more text might change the verdict, or None.

    The last doubling of the text moved each effect by some amount. If another move of the same size would cross the
    threshold, the estimate has not converged. A claim holds if all of its conditions hold, and fails if the deciding
    one fails.
    """
    halves = {name: _at_half(reading, models) for name, reading in finding.reads.items()}
    if halves == dict(finding.reads):
        return None
    try:
        found = gather(halves, models, within=seeds)
    except Absent:
        return None
    before = finding.conditions({name: one.mean() for name, one in found.items()})
    at_stake = range(len(outcomes)) if outcomes[index].verdict == "holds" else [index]
    return next((reason for i in at_stake if (reason := _moves(outcomes[i], before[i]))), None)


def _moves(outcome: Outcome, before: Condition) -> str | None:
    """How the effect moved, if it moved at least as far as its distance from the threshold."""
    half, threshold = float(before.values[0, outcome.column]), before.threshold
    if not abs(outcome.effect - threshold) <= abs(outcome.effect - half):
        return None
    return (
        f"{outcome.condition.name} has not converged: half of the sentences give {short(half)} {before.unit}, all of "
        f"them {short(outcome.effect)}, and the threshold ({short(threshold)}) is no further away"
    )


def _at_half(reading: Reading, models: ModelGroup) -> Reading:
    has_halves = all(_AT_HALF in models.tables.get(name, ()) for name in reading.sources)
    return reading.changed(number=_AT_HALF) if has_halves else reading


MOST_SEEDS = 1000
"""The largest number of seeds that is ever reported as needed."""


def seeds_to_decide(
    effect: float, interval: Interval, threshold: float, *, seeds: int, seed_error: float, sentence_error: float
) -> int | None:
    r"""The least number of seeds whose interval would exclude the threshold, if the true effect equals its estimate.

    With $k$ seeds, the squared standard error is $e^2$ from the seeds and $s^2$ from the sentences, without the part
    that the spread over seeds already contains. $n$ seeds on the same sentences have $a^2 = e^2 k / n$ and half width

    $$ h(n) = \max\left(\frac{t_{n-1}\, a^2 + t_s\, s^2}{\sqrt{a^2 + s^2}},\ t_s\, s\right) $$

    as in `infoflow.foundation.join_halves`, where $t_{n-1}$ is Student's quantile. The interval's extent towards the
    threshold, which may be wider (several layers, a rank correlation), is assumed to shrink as $h(n) / h(k)$. The
    result is the least $n > k$ at which it no longer reaches the threshold. This is for planning, not a guarantee: $n$
    seeds decide an effect of exactly this size in about half of all studies, and a few seeds determine their own spread
    only up to a factor of two.

    Args:
        effect: The estimate.
        interval: Its 95 % interval, with `seeds` seeds.
        threshold: Value that the interval must exclude.
        seeds: $k$, the current number of seeds.
        seed_error: $e$, standard error of the effect from the choice of seeds, in its unit; NaN: unknown.
        sentence_error: $s$, standard error from the choice of sentences.

    Returns:
        The number of seeds, or `MOST_SEEDS` + 1 if no number up to `MOST_SEEDS` suffices. None for a single seed, or if
            the interval already excludes the threshold or does not come from the seeds' spread.
    """
    gap = abs(effect - threshold)
    reach = abs((interval.low if effect > threshold else interval.high) - effect)
    if seeds < 2 or not all(map(math.isfinite, (gap, reach, sentence_error))) or reach < gap or not seed_error > 0:
        return None
    t_sentences = t_quantile(sentence_df(NUM_REPLICATES))

    def half(num: int) -> float:
        by_seeds, by_sentences = seed_error**2 * seeds / num, sentence_error**2
        joined = (t_quantile(num - 1) * by_seeds + t_sentences * by_sentences) / math.sqrt(by_seeds + by_sentences)
        return max(joined, t_sentences * sentence_error)

    def decides(num: int) -> bool:
        return reach * half(num) < gap * half(seeds)

    numbers = range(seeds + 1, MOST_SEEDS + 1)  # the half width falls with every additional seed
    return seeds + 1 + bisect_left(numbers, True, key=decides)


def seeds_to_count(share: float, of: int, threshold: float, *, seeds: int) -> int | None:
    """The least number of seeds for which the Wilson interval of a share (`of` items per seed) excludes the threshold.

    None if `seeds` seeds suffice already, or if no number up to `MOST_SEEDS` does.
    """
    ends = ((number, wilson(share, of * number)) for number in range(seeds, MOST_SEEDS + 1))
    needed = next((number for number, (low, high) in ends if not low <= threshold <= high), None)
    return None if needed == seeds else needed


def seeds_text(needed: int | None, seeds: int) -> str:
    """The number of seeds as a sentence; "" if it is unknown."""
    if needed is None:
        return ""
    many = f"about {needed:,} seeds" if needed <= MOST_SEEDS else f"no number of seeds up to {MOST_SEEDS:,}"
    return f"At this effect, and with the spread of these {seeds} seeds, {many} would decide it."
