"""How many seeds would decide an undetermined claim."""

import math

from infoflow.foundation import NUM_REPLICATES, Interval, sentence_df, t_quantile

from ._condition import wilson

MOST_SEEDS = 1000
"""Maximum number of seeds that is reported as an answer."""


def seeds_to_decide(
    effect: float, interval: Interval, threshold: float, *, seeds: int, seed_error: float, sentence_error: float
) -> int | None:
    r"""The least number of seeds whose interval would exclude the threshold, if the effect equals its estimate.

    With $k$ seeds the squared standard error is $e^2$ by the seeds, and $s^2$ by the sentences beyond what the spread
    over seeds contains. $n$ seeds on the same sentences have $a^2 = e^2 k / n$ and the half width

    $$ h(n) = \max\left(\frac{t_{n-1}\, a^2 + t_s\, s^2}{\sqrt{a^2 + s^2}},\ t_s\, s\right) $$

    as in `infoflow.foundation.join_halves`, with $t_{n-1}$ as Student's quantile. The interval's extent towards the
    threshold, which may be wider (several layers, a rank correlation), is assumed to shrink as $h(n) / h(k)$; the
    answer is the least $n > k$ at which it falls short of the threshold. The answer is a plan, not a guarantee: an
    effect of exactly this size is decided by $n$ seeds about every second time, and few seeds determine their own
    spread only up to a factor of two.

    Args:
        effect: The estimate.
        interval: Its 95 % interval, with `seeds` seeds.
        threshold: Value that the interval must exclude.
        seeds: $k$, the current number of seeds.
        seed_error: $e$, standard error of the effect by the choice of seeds, in its unit; NaN: unknown.
        sentence_error: $s$, likewise by the choice of sentences.

    Returns:
        The number. None without an answer: one seed, an interval that already excludes the threshold, or one that does
        not come from the seeds' spread. `MOST_SEEDS` + 1: no number up to `MOST_SEEDS` suffices.
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

    if not decides(MOST_SEEDS):
        return MOST_SEEDS + 1
    low, high = seeds, MOST_SEEDS  # the half width falls with every seed
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def seeds_to_count(share: float, of: int, threshold: float, *, seeds: int) -> int | None:
    """The least number of seeds whose Wilson interval for a share of `of` things in each excludes the threshold.

    None if that of `seeds` already does, and if no number up to `MOST_SEEDS` would.
    """
    ends = ((number, wilson(share, of * number)) for number in range(seeds, MOST_SEEDS + 1))
    needed = next((number for number, (low, high) in ends if not low <= threshold <= high), None)
    return None if needed == seeds else needed


def told_seeds(needed: int | None, seeds: int) -> str:
    """The same as a sentence, or "" without an answer."""
    if needed is None:
        return ""
    many = f"about {needed:,}" if needed <= MOST_SEEDS else f"no number up to {MOST_SEEDS:,}"
    return f"At this effect, and with the spread of these {seeds} seeds, {many} would decide it."
