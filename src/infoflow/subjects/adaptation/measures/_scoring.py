"""Metrics of a part, with a bootstrap over blocks of examples: replicates are computed from sums per block.

Values equal those of scikit-learn, SciPy and, for entities, seqeval; a replicate equals the value on the resampled
examples.
"""

# R replicate, B block, E example, K class, G group of equal values

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from infoflow.corpus import Corpus
from infoflow.foundation import (
    NUM_BLOCKS,
    Interval,
    Scale,
    at_least_each_class,
    at_least_fisher,
    block_effects,
    block_interval,
    block_of,
    block_sums,
    replicate_weights,
)
from infoflow.results import estimate, scale_of

from ._task import OUTSIDE, Score

Blocks = Int[np.ndarray, " example"]  # the bootstrap block of each example of a part


def blocks_of(corpus: Corpus) -> Blocks:
    """The block of each example, determined by its content: the same for every model."""
    return block_of(corpus.content_ids)


def share_right(metric: str, right: Bool[np.ndarray, " item"], blocks: Blocks, baseline: float) -> Score:
    """The share of right items; `blocks` are per item, since several items may belong to one example."""
    of_block = [block_sums(right, blocks), block_sums(np.ones(len(right)), blocks)]
    return scored(metric, _ratio(*of_block), baseline, len(right), blocks, "share")


def class_scores(
    wanted: Int[np.ndarray, " example"],
    said: Int[np.ndarray, " example"],
    guess: int,
    num_classes: int,
    blocks: Blocks,
) -> list[Score]:
    r"""Accuracy, macro-averaged F1 and Matthews' correlation; the baseline always predicts `guess`.

    The index `num_classes` stands for an answer that is not a class. Macro-F1 is the mean over the classes that occur
    in gold labels or predictions, as in scikit-learn. Matthews' correlation for several classes: [@gorodkin2004].
    """
    guessed = np.full_like(wanted, guess)
    confusion_BKK, of_guess_BKK = (_confusion(wanted, one, num_classes + 1, blocks) for one in (said, guessed))
    drawn_RKK, of_guess = _drawn(confusion_BKK), macro_f1(of_guess_BKK.sum(axis=0, keepdims=True))

    # An error costs Matthews' correlation 1 / (1 - sum of squared class shares), on a scale of width two.
    shares = np.bincount(wanted) / len(wanted) if len(wanted) else np.ones(1)
    agreeing = 2 * len(wanted) * (1 - (shares**2).sum())

    return [
        share_right("accuracy", wanted == said, blocks, float((wanted == guessed).mean())),
        _each_class(
            scored("macro_f1", macro_f1(drawn_RKK), float(of_guess[0]), len(wanted), blocks, "share"),
            confusion_BKK.sum(axis=0),
        ),
        scored("matthews", matthews(drawn_RKK), 0.0, len(wanted), blocks, "correlation", agreeing),
    ]


def _each_class(score: Score, confusion: Float[np.ndarray, "class class"]) -> Score:
    """Macro F1, with an interval from the counts of each class."""
    hits, named = np.diagonal(confusion)[:-1], (confusion.sum(0) + confusion.sum(1))[:-1]
    there = named > 0
    ends = at_least_each_class(Interval(score.row["low"], score.row["high"]), hits[there], named[there])
    return Score(metric=score.metric, row={**score.row, "low": ends.low, "high": ends.high})


def macro_f1(confusion: Float[np.ndarray, "*replicate class class"]) -> Float[np.ndarray, "*replicate"]:
    """Mean of 2 TP / (predicted + gold) over the classes that occur, from counts (gold, predicted).

    The last column counts predictions that are not a class.
    """
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)[..., :-1]
    named = (confusion.sum(-1) + confusion.sum(-2))[..., :-1]
    with np.errstate(invalid="ignore"):
        return np.where(named > 0, 2 * hits / named, 0.0).sum(-1) / (named > 0).sum(-1)


def matthews(confusion: Float[np.ndarray, "*replicate class class"]) -> Float[np.ndarray, "*replicate"]:
    """Matthews' correlation from counts (gold, predicted); 0 if either is constant."""
    right, given, total = confusion.sum(-1), confusion.sum(-2), confusion.sum((-2, -1))
    together = np.diagonal(confusion, axis1=-2, axis2=-1).sum(-1) * total - (right * given).sum(-1)
    spread = (total**2 - (right**2).sum(-1)) * (total**2 - (given**2).sum(-1))
    return _over(together, np.sqrt(spread))


def set_scores(
    wanted: Bool[np.ndarray, "example class"],
    said: Bool[np.ndarray, "example class"],
    guess: Bool[np.ndarray, " class"],
    blocks: Blocks,
) -> list[Score]:
    """Micro- and macro-averaged F1 of examples with several labels, and the share of exactly right label sets.

    `guess` is the label set that the baseline predicts for every example. A label that is neither gold nor predicted
    has F1 0.
    """
    guessed = np.broadcast_to(guess, wanted.shape)

    def f1(answers: np.ndarray) -> dict[str, np.ndarray]:
        both = (wanted & answers, wanted.astype(int) + answers)
        hits_RK, named_RK = (_drawn(block_sums(counts, blocks)) for counts in both)
        return {
            "micro_f1": _over(2 * hits_RK.sum(1), named_RK.sum(1)),
            "macro_f1": _over(2 * hits_RK, named_RK).mean(1),
        }

    of_guess = f1(guessed)
    scores = [
        scored(metric, drawn, float(of_guess[metric][0]), len(wanted), blocks, "share")
        for metric, drawn in f1(said).items()
    ]
    exact = float((wanted == guessed).all(1).mean())
    return [*scores, share_right("accuracy", (wanted == said).all(1), blocks, exact)]


def number_scores(
    wanted: Float[np.ndarray, " example"], said: Float[np.ndarray, " example"], guess: float, blocks: Blocks
) -> list[Score]:
    """Pearson's and Spearman's correlation, and explained variance (r2); `guess` is the baseline's number.

    A correlation with a constant is 0.
    """
    from scipy.stats import rankdata
    from sklearn.metrics import r2_score

    weights_RE = _weights()[:, blocks]
    replicates = [
        correlations(wanted, said, weights_RE),
        correlations(weighted_ranks(wanted, weights_RE), weighted_ranks(said, weights_RE), weights_RE),
        _explained(wanted, said, weights_RE),
    ]
    values = [correlation(wanted, said), correlation(rankdata(wanted), rankdata(said)), float(r2_score(wanted, said))]
    baselines = [0.0, 0.0, float(r2_score(wanted, np.full_like(wanted, guess)))]
    return [
        scored(metric, np.append(value, drawn), baseline, len(wanted), blocks, scale_of(metric))
        for metric, value, drawn, baseline in zip(
            ("pearson", "spearman", "r2"), values, replicates, baselines, strict=True
        )
    ]


def correlation(x: Float[np.ndarray, " example"], y: Float[np.ndarray, " example"]) -> float:
    """Pearson's correlation; 0 if either is constant."""
    from scipy.stats import pearsonr

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(pearsonr(x, y).statistic)


def correlations(x: np.ndarray, y: np.ndarray, weights: Float[np.ndarray, "replicate example"]) -> np.ndarray:
    """Pearson's correlation of each resample, (replicate,); x and y are per example, or per resample and example."""
    total = weights.sum(1)
    x, y = (values - _over((weights * values).sum(1), total)[:, None] for values in (x, y))
    spread = (weights * x**2).sum(1) * (weights * y**2).sum(1)
    return _over((weights * x * y).sum(1), np.sqrt(spread))


def weighted_ranks(
    values: Float[np.ndarray, " example"], weights: Float[np.ndarray, "replicate example"]
) -> Float[np.ndarray, "replicate example"]:
    """The rank of each example in each resample; ties share their mean rank.

    `weights` is the count of each example in each resample.
    """
    _, group_E = np.unique(values, return_inverse=True)
    counts_RG = np.stack([np.bincount(group_E, weights=row) for row in weights])
    up_to_RG = np.cumsum(counts_RG, axis=1)
    return (up_to_RG - (counts_RG - 1) / 2)[:, group_E]


def _explained(wanted: np.ndarray, said: np.ndarray, weights: np.ndarray) -> np.ndarray:
    mean = _over(weights @ wanted, weights.sum(1))
    spread = (weights * (wanted - mean[:, None]) ** 2).sum(1)
    return 1 - _over(weights @ (wanted - said) ** 2, spread)


def entity_score(wanted: Sequence[Sequence[str]], said: Sequence[Sequence[str]], guess: str, blocks: Blocks) -> Score:
    r"""Micro-averaged F1 of entities, $2\,\mathrm{TP} / (\text{predicted} + \text{gold})$, as in CoNLL's script.

    `guess` is the tag that the baseline predicts for every word.
    """
    guessed = [[guess] * len(tags) for tags in wanted]
    counts_E2, of_guess_E2 = entity_counts(wanted, said), entity_counts(wanted, guessed)
    drawn, of_guess = (_ratio(*block_sums(counts_E2, blocks).T) for counts_E2 in (counts_E2, of_guess_E2))
    return scored("entity_f1", drawn, float(of_guess[0]), len(wanted), blocks, "share")


def entity_counts(wanted: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> Float[np.ndarray, "example 2"]:
    """For each sentence, twice the number of right entities, and the number of gold plus predicted entities."""
    found = [[_entities(tags) for tags in side] for side in (wanted, said)]
    return np.array([(2.0 * len(a & b), len(a) + len(b)) for a, b in zip(*found, strict=True)], dtype=np.float64)


def _entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Type, first and last word of each entity.

    An entity continues at `I-` or `E-` after `B-` or `I-` of its type; every other tag except `O` begins one, even an
    `I-` after `O`.
    """
    found: list[tuple[str, int, int]] = []
    before = OUTSIDE
    for index, tag in enumerate(tags):
        goes_on = tag[0] in "IE" and before[0] in "BI" and tag[1:] == before[1:]
        if tag != OUTSIDE:
            first = found.pop()[1] if goes_on else index
            found.append((tag[2:], first, index))
        before = tag
    return set(found)


def scored(
    metric: str,
    drawn: Float[np.ndarray, " draw"],
    baseline: float,
    count: int,
    blocks: Blocks,
    scale: Scale = "any",
    agreeing: float | None = None,
) -> Score:
    """One metric with its interval: its value, then that of each resample, are in `drawn`.

    `blocks` determine the independent units and which resamples are empty (NaN).
    `agreeing` is the effective number of observations if all `count` of them agree; default: `count`.
    """
    there = np.unique(blocks)
    value, units = float(drawn[0]), len(there)
    replicates = np.where(_weights()[:, there].sum(1) > 0, drawn[1:], np.nan)
    agree = count if agreeing is None else agreeing
    ends = block_interval(value, block_effects(value, replicates), units=units, scale=scale, count=agree)
    if scale == "correlation":
        ends = at_least_fisher(ends, value, count)
    row: dict[str, Any] = estimate(value, replicates, baseline, count, ends=ends)
    return Score(metric=metric, row=row)


def _confusion(wanted: np.ndarray, said: np.ndarray, num_classes: int, blocks: Blocks) -> np.ndarray:
    cells = (blocks * num_classes + wanted) * num_classes + said
    counts = np.bincount(cells, minlength=NUM_BLOCKS * num_classes**2)
    return counts.reshape(NUM_BLOCKS, num_classes, num_classes).astype(np.float64)


def _drawn(sums_B: np.ndarray) -> np.ndarray:
    """The sums over all blocks, then over the blocks of each resample: (1 + R, ...)."""
    return np.concatenate([sums_B.sum(0, keepdims=True), np.tensordot(_weights(), sums_B, axes=1)])


def _ratio(numerator_B: np.ndarray, denominator_B: np.ndarray) -> np.ndarray:
    return _over(_drawn(numerator_B), _drawn(denominator_B))


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The quotient, 0 for 0/0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


@cache
def _weights() -> np.ndarray:
    return replicate_weights()
