"""Scores of guesses that ignore the question or copy the beginning of a text: the baseline of answers and texts."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from infoflow.corpus import Corpus, sentences_of
from infoflow.foundation import NUM_BLOCKS, Scale
from infoflow.results import ratio_estimate

from ._scoring import blocks_of
from ._task import Score

Wanted = Callable[[Corpus], list[list[str]]]
"""Right answers of each example, the first one first."""
Metric = Callable[[Sequence[str], Sequence[Sequence[str]]], float]
"""A metric from the predictions and references of all examples; 1 is best."""

_LOOKED_AT = 500  # training examples for choosing a guess


def guess_score(metric: Metric, wanted: Wanted, corpus: Corpus, train: Corpus, nothing: bool = False) -> float:
    """The metric of the best guess on `corpus`, chosen on `train`.

    Guesses are the first sentence of each text and the most frequent training answer; with `nothing` also "".
    """
    rows = np.unique(np.linspace(0, len(train) - 1, _LOOKED_AT).astype(int))
    seen = train.select(rows)
    often = Counter(each[0] if each else "" for each in wanted(train)).most_common(1)[0][0]
    guesses = [_lead, _always(often), *([_always("")] if nothing else [])]
    best = max(guesses, key=lambda guess: metric(guess(seen), wanted(seen)))
    return metric(best(corpus), wanted(corpus))


def mean_of(score: Callable[[str, Sequence[str]], float]) -> Metric:
    """The mean over examples of a score per example."""

    def metric(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
        return float(np.mean([score(*each) for each in zip(said, wanted, strict=True)]))

    return metric


def mean_score(metric: str, values: np.ndarray, corpus: Corpus, baseline: float, scale: Scale = "share") -> Score:
    """The mean of a score per example, with its interval over blocks of examples."""
    blocks = blocks_of(corpus)
    sums = np.bincount(blocks, weights=values, minlength=NUM_BLOCKS)
    return Score(
        metric=metric, row=ratio_estimate(sums, np.bincount(blocks, minlength=NUM_BLOCKS) * 1.0, baseline, scale)
    )


def _lead(corpus: Corpus) -> list[str]:
    return [sentences_of(text)[0] for text in corpus.column("text")]


def _always(text: str) -> Callable[[Corpus], list[str]]:
    return lambda corpus: [text] * len(corpus)
