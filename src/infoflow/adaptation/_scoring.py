"""Metrics of a part with their bootstrap over blocks of examples: sums per block, and every replicate from them.

Values are scikit-learn's, SciPy's and seqeval's; replicates are what these would say of the resampled examples.
"""

# R replicate, B block, E example, K class, G group of equal values

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from infoflow.corpus import Corpus
from infoflow.foundation import NUM_BLOCKS, Scale, block_of, replicate_weights
from infoflow.results import estimate

from ._task import Score

Blocks = Int[np.ndarray, " example"]
"""The bootstrap block of each example of a part."""


def blocks_of(corpus: Corpus) -> Blocks:
    """The block of each example, which its content decides: the same for every model."""
    return block_of(corpus.content_ids)


def share_right(metric: str, right: Bool[np.ndarray, " item"], blocks: Blocks, baseline: float) -> Score:
    """The share of items that are right; `blocks` of the items, several of which may be of one example."""
    value = float(right.mean()) if len(right) else float("nan")
    of_block = [_sums(right.astype(np.float64), blocks), _sums(np.ones(len(right)), blocks)]
    return scored(metric, value, _ratio(*of_block), baseline, len(right), blocks, "share")


def class_scores(
    wanted: Int[np.ndarray, " example"],
    said: Int[np.ndarray, " example"],
    guess: int,
    num_classes: int,
    blocks: Blocks,
) -> list[Score]:
    r"""Accuracy, macro-averaged F1 and Matthews' correlation; `guess` is the class that a guess always says, and
    `num_classes` an answer that is no class.

    Macro-F1 is the mean over the classes that occur among the right or the given answers, as in scikit-learn. Matthews'
    correlation of several classes is that of [@gorodkin2004].
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    guessed = np.full_like(wanted, guess)
    confusion_BKK = _confusion(wanted, said, num_classes + 1, blocks)
    resampled_RKK = np.tensordot(_weights(), confusion_BKK, axes=1)

    def macro(answers: np.ndarray) -> float:
        occurring = np.union1d(wanted, answers)
        classes = occurring[occurring < num_classes]
        return float(f1_score(wanted, answers, labels=classes, average="macro", zero_division=0))

    def row(metric: str, value: float, of: Callable[[np.ndarray], np.ndarray], baseline: float, scale: Scale) -> Score:
        return scored(metric, value, of(resampled_RKK), baseline, len(wanted), blocks, scale)

    return [
        share_right("accuracy", wanted == said, blocks, float((wanted == guessed).mean())),
        row("macro_f1", macro(said), macro_f1, macro(guessed), "share"),
        row("matthews", float(matthews_corrcoef(wanted, said)), matthews, 0.0, "any"),
    ]


def macro_f1(confusion: Float[np.ndarray, "*replicate class class"]) -> Float[np.ndarray, "*replicate"]:
    """Mean over the classes that occur of 2 TP / (given + right), from counts (right answer, given answer), of which
    the last is no class."""
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)[..., :-1]
    named = (confusion.sum(-1) + confusion.sum(-2))[..., :-1]
    with np.errstate(invalid="ignore"):
        return np.where(named > 0, 2 * hits / named, 0.0).sum(-1) / (named > 0).sum(-1)


def matthews(confusion: Float[np.ndarray, "*replicate class class"]) -> Float[np.ndarray, "*replicate"]:
    """Matthews' correlation from counts (right answer, given answer); 0 where either is constant."""
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
    """Micro- and macro-averaged F1 of examples that may have several labels, and the share with exactly the right ones.

    `guess` are the labels that a guess gives every example. A label that is neither right nor given has F1 0.
    """
    from sklearn.metrics import f1_score

    guessed = np.broadcast_to(guess, wanted.shape)
    hits_RK, named_RK = (
        _weights() @ _sums(counts.astype(np.float64), blocks)
        for counts in (wanted & said, wanted.astype(int) + said.astype(int))
    )

    def f1(answers: np.ndarray, average: str) -> float:
        return float(f1_score(wanted, answers, average=average, zero_division=0))

    replicates = {
        "micro": _over(2 * hits_RK.sum(1), named_RK.sum(1)),
        "macro": _over(2 * hits_RK, named_RK).mean(1),
    }
    scores = [
        scored(f"{name}_f1", f1(said, name), values, f1(guessed, name), len(wanted), blocks, "share")
        for name, values in replicates.items()
    ]
    exact = float((wanted == guessed).all(1).mean())
    return [*scores, share_right("accuracy", (wanted == said).all(1), blocks, exact)]


def number_scores(
    wanted: Float[np.ndarray, " example"], said: Float[np.ndarray, " example"], guess: float, blocks: Blocks
) -> list[Score]:
    """Pearson's and Spearman's correlation, and the share of variance explained (r2); `guess` is a number for all.

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
        scored(metric, value, drawn, baseline, len(wanted), blocks)
        for metric, value, drawn, baseline in zip(
            ("pearson", "spearman", "r2"), values, replicates, baselines, strict=True
        )
    ]


def correlation(x: Float[np.ndarray, " example"], y: Float[np.ndarray, " example"]) -> float:
    """Pearson's correlation; 0 where either is constant."""
    from scipy.stats import pearsonr

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(pearsonr(x, y).statistic)


def correlations(x: np.ndarray, y: np.ndarray, weights: Float[np.ndarray, "replicate example"]) -> np.ndarray:
    """Pearson's correlation of each resample; x and y of the examples, or of each resample's: (replicate,)."""
    total = weights.sum(1)
    x, y = (values - _over((weights * values).sum(1), total)[:, None] for values in (x, y))
    spread = (weights * x**2).sum(1) * (weights * y**2).sum(1)
    return _over((weights * x * y).sum(1), np.sqrt(spread))


def weighted_ranks(
    values: Float[np.ndarray, " example"], weights: Float[np.ndarray, "replicate example"]
) -> Float[np.ndarray, "replicate example"]:
    """The rank that each example has in each resample, where `weights` say how often it stands in it; equal values
    share their mean rank."""
    _, group_E = np.unique(values, return_inverse=True)
    counts_RG = np.stack([np.bincount(group_E, weights=row) for row in weights])
    up_to_RG = np.cumsum(counts_RG, axis=1)
    return (up_to_RG - (counts_RG - 1) / 2)[:, group_E]


def _explained(wanted: np.ndarray, said: np.ndarray, weights: np.ndarray) -> np.ndarray:
    mean = _over(weights @ wanted, weights.sum(1))
    spread = (weights * (wanted - mean[:, None]) ** 2).sum(1)
    return 1 - _over(weights @ (wanted - said) ** 2, spread)


def entity_score(wanted: Sequence[Sequence[str]], said: Sequence[Sequence[str]], guess: str, blocks: Blocks) -> Score:
    r"""Micro-averaged F1 of entities, $2\,\mathrm{TP} / (\text{given} + \text{right})$, as seqeval counts them by
    default: the way of CoNLL's own script, in which an `I-` tag after `O` begins an entity too.

    `guess` is the tag that a guess gives every word.
    """
    from seqeval.metrics import f1_score

    guessed = [[guess] * len(tags) for tags in wanted]
    counts_B2 = _sums(entity_counts(wanted, said), blocks)
    value, baseline = (float(f1_score(wanted, answers, zero_division=0)) for answers in (said, guessed))
    return scored("entity_f1", value, _ratio(*counts_B2.T), baseline, len(wanted), blocks, "share")


def entity_counts(wanted: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> Float[np.ndarray, "example 2"]:
    """Of each sentence twice the entities that are right, and those that are there plus those that were given."""
    from seqeval.metrics.sequence_labeling import get_entities

    found = [[set(get_entities(list(tags))) for tags in side] for side in (wanted, said)]
    return np.array([(2.0 * len(a & b), len(a) + len(b)) for a, b in zip(*found, strict=True)], dtype=np.float64)


def scored(
    metric: str,
    value: float,
    replicates: Float[np.ndarray, " replicate"],
    baseline: float,
    count: int,
    blocks: Blocks,
    scale: Scale = "any",
) -> Score:
    """One metric with its interval; `blocks` tell how many independent units there are, and which resamples are empty:
    those are no numbers."""
    there = np.unique(blocks)
    units = len(there)
    replicates = np.where(_weights()[:, there].sum(1) > 0, replicates, np.nan)
    row: dict[str, Any] = estimate(value, replicates, baseline, count, scale=scale, units=units)
    return Score(metric=metric, row=row)


def _confusion(wanted: np.ndarray, said: np.ndarray, num_classes: int, blocks: Blocks) -> np.ndarray:
    cells = (blocks * num_classes + wanted) * num_classes + said
    counts = np.bincount(cells, minlength=NUM_BLOCKS * num_classes**2)
    return counts.reshape(NUM_BLOCKS, num_classes, num_classes).astype(np.float64)


def _sums(values: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Sums per block: (64, ...)."""
    sums = np.zeros((NUM_BLOCKS, *values.shape[1:]))
    np.add.at(sums, blocks, values)
    return sums


def _ratio(numerator_B: np.ndarray, denominator_B: np.ndarray) -> np.ndarray:
    return _over(_weights() @ numerator_B, _weights() @ denominator_B)


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The quotient, 0 where nothing is divided by nothing."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


@cache
def _weights() -> np.ndarray:
    return replicate_weights()
