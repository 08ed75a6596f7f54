"""How well generated texts and guesses agree with the references."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from infoflow.corpus import Corpus, normalised, sentences_of
from infoflow.foundation import NUM_BLOCKS, Scale, comparable, replicate_weights
from infoflow.models import BleuStatistics, bleu_by_block, bleu_statistics, rouge
from infoflow.results import estimate, ratio_estimate

from ._scoring import blocks_of
from ._task import Score

Wanted = Callable[[Corpus], list[list[str]]]  # right answers of each example, the main one first
Metric = Callable[[Sequence[str], Sequence[Sequence[str]]], float]
"""A metric from the predictions and references of all examples; 1 is best."""

_LOOKED_AT = 500  # maximum number of training examples for choosing a guess


def guess_score(metric: Metric, wanted: Wanted, corpus: Corpus, train: Corpus, nothing: bool = False) -> float:
    """The metric of the best guess on `corpus`, chosen on `train`.

    Guesses are the first sentence of each text, the most frequent training answer and, with `nothing`, "".
    """
    rows = np.unique(np.linspace(0, len(train) - 1, _LOOKED_AT).astype(int))
    seen = train.select(rows)
    often = Counter(each[0] if each else "" for each in wanted(train)).most_common(1)[0][0]
    guesses = [_lead, _always(often), *([_always("")] if nothing else [])]
    best = max(guesses, key=lambda guess: metric(guess(seen), wanted(seen)))
    return metric(best(corpus), wanted(corpus))


def mean_of(score: Callable[[str, Sequence[str]], float]) -> Metric:
    """The metric that is the mean over examples of a per-example score."""

    def metric(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
        return float(np.mean([score(*each) for each in zip(said, wanted, strict=True)]))

    return metric


def mean_score(metric: str, values: np.ndarray, corpus: Corpus, baseline: float, scale: Scale = "share") -> Score:
    """The mean of per-example values, with its interval over blocks of examples."""
    blocks = blocks_of(corpus)
    sums = np.bincount(blocks, weights=values, minlength=NUM_BLOCKS)
    return Score(
        metric=metric, row=ratio_estimate(sums, np.bincount(blocks, minlength=NUM_BLOCKS) * 1.0, baseline, scale)
    )


def _lead(corpus: Corpus) -> list[str]:
    return [sentences_of(text)[0] for text in corpus.column("text")]


def _always(text: str) -> Callable[[Corpus], list[str]]:
    return lambda corpus: [text] * len(corpus)


# How well generated texts agree with the references.

TextMetric = Literal["rougeL", "rouge1", "rouge2", "bleu", "chrf", "exact_match"]
"""ROUGE-L, 1 and 2 ([@lin2004]): F of the longest common subsequence, of words and of word pairs, against the closest
reference. BLEU and chrF ([@popovic2015]): of the whole part, against all references. Exact match: whether the text is a
reference.
"""


def text_scores(said: Sequence[str], wanted: Wanted, corpus: Corpus, train: Corpus) -> list[Score]:
    """All metrics (1 is best), ignoring case and visually equivalent forms (`comparable`).

    The baseline is the better of two guesses: the first sentence of the source, and the most frequent training text.

    ROUGE is computed by `rouge`, BLEU by sacreBLEU with the tokenizer for the script (`bleu_tokenizer`), and chrF by
    sacreBLEU.
    """
    references = wanted(corpus)
    scores = []
    for kind, values in rouge(said, references).items():
        metric = mean_of(lambda text, right, kind=kind: float(rouge([text], [right])[kind][0]))
        scores.append(mean_score(kind, values, corpus, guess_score(metric, wanted, corpus, train)))
    values = np.array([exact_text(*each) for each in zip(said, references, strict=True)])
    guess = guess_score(mean_of(exact_text), wanted, corpus, train)
    return [
        *scores,
        _of_whole("bleu", _bleu, said, references, corpus, guess_score(corpus_bleu, wanted, corpus, train)),
        _of_whole("chrf", _chrf, said, references, corpus, guess_score(corpus_chrf, wanted, corpus, train)),
        mean_score("exact_match", values, corpus, guess),
    ]


def exact_text(said: str, wanted: Sequence[str]) -> float:
    """1 if the text is one of `wanted`, ignoring case, spacing and compatibility forms, else 0."""
    return float(normalised(said) in map(normalised, wanted))


def corpus_bleu(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """BLEU of all texts as one corpus, 0 to 1."""
    return bleu_statistics(said, wanted, lowercase=True).score / 100


def corpus_chrf(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """chrF of all texts as one corpus, 0 to 1."""
    from sacrebleu.metrics.chrf import CHRF

    said, wanted = _comparable(said, wanted)
    return float(CHRF(lowercase=True).corpus_score(said, _streams(wanted)).score) / 100


def _of_whole(
    metric: str, of: Any, said: Sequence[str], wanted: Sequence[Sequence[str]], corpus: Corpus, baseline: float
) -> Score:
    """A metric with one value per part, and its interval over blocks of examples."""
    blocks = blocks_of(corpus)
    value, replicates = of(said, wanted, blocks)
    units = len(np.unique(blocks))
    return Score(metric=metric, row=estimate(value, replicates, baseline, len(said), scale="share", units=units))


def _bleu(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """BLEU from the statistics of each block, and of every resample of blocks."""
    statistics = bleu_by_block(said, wanted, blocks)

    def score(weights: np.ndarray) -> float:
        drawn = (one * int(weights[block]) for block, one in statistics.items() if weights[block])
        return sum(drawn, start=BleuStatistics.zero()).score / 100

    return score(np.ones(NUM_BLOCKS)), np.array([score(weights) for weights in replicate_weights()])


def _chrf(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """chrF, computed as in `_bleu`, because its counts of matching character n-grams add up over texts."""
    from sacrebleu.metrics.chrf import CHRF

    metric, (said, wanted) = CHRF(lowercase=True), _comparable(said, wanted)
    counts = np.array(metric._extract_corpus_statistics(said, _streams(wanted)), dtype=np.float64)
    sums = np.zeros((NUM_BLOCKS, counts.shape[1]))
    np.add.at(sums, blocks, counts)

    def score(weights: np.ndarray) -> float:
        drawn = (weights @ sums).round().astype(int).tolist()
        return float(metric._compute_score_from_stats(drawn).score) / 100

    return score(np.ones(NUM_BLOCKS)), np.array([score(weights) for weights in replicate_weights()])


def _streams(wanted: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Transposed references: list i has the i-th reference of each text, or None where a text has fewer."""
    most = max(map(len, wanted))
    return [[right[index] if index < len(right) else None for right in wanted] for index in range(most)]


def _comparable(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    return [comparable(text) for text in said], [[comparable(text) for text in right] for right in wanted]
