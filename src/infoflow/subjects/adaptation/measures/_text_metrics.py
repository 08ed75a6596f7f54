"""How well generated texts and guesses agree with the references."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from infoflow.corpus import Corpus, normalised, sentences_of
from infoflow.foundation import NUM_BLOCKS, Scale, block_sums, comparable, replicate_weights
from infoflow.models import BleuStatistics, bleu_by_block, rouge
from infoflow.results import estimate, ratio_estimate

from ._scoring import blocks_of
from ._task import Score

Wanted = Callable[[Corpus], list[list[str]]]  # right answers of each example, the main one first
Metric = Callable[[Sequence[str], Sequence[Sequence[str]]], float]
"""A metric from the predictions and references of all examples; 1 is best."""
Resampled = Callable[[np.ndarray], float]
"""A metric of a whole part, given the weight of each block of examples."""

_WHOLE = np.ones(NUM_BLOCKS)
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
    """Turn a score of one example into a metric, its mean over examples."""

    def metric(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
        return float(np.mean([score(*each) for each in zip(said, wanted, strict=True)]))

    return metric


def mean_score(metric: str, values: np.ndarray, corpus: Corpus, baseline: float, scale: Scale = "share") -> Score:
    """The mean of per-example values, with its interval over blocks of examples."""
    blocks = blocks_of(corpus)
    sums, counts = block_sums(values, blocks), block_sums(np.ones(len(values)), blocks)
    return Score(metric=metric, row=ratio_estimate(sums, counts, baseline, scale))


def _lead(corpus: Corpus) -> list[str]:
    return [sentences_of(text)[0] for text in corpus.column("text")]


def _always(text: str) -> Callable[[Corpus], list[str]]:
    return lambda corpus: [text] * len(corpus)


# How well generated texts agree with the references.

TextMetric = Literal["rougeL", "rouge1", "rouge2", "bleu", "chrf", "exact_match"]
"""ROUGE-L, 1 and 2 ([@lin2004]) are F scores of the longest common subsequence, of words and of word pairs, against the
closest reference. BLEU and chrF ([@popovic2015]) score the whole part against all references. Exact match is whether
the text equals a reference.
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
        *(_of_whole(name, whole, said, wanted, corpus, train) for name, whole in (("bleu", _bleu), ("chrf", _chrf))),
        mean_score("exact_match", values, corpus, guess),
    ]


def exact_text(said: str, wanted: Sequence[str]) -> float:
    """1 if the text is one of `wanted`, ignoring case, spacing and compatibility forms, else 0."""
    return float(normalised(said) in map(normalised, wanted))


def _of_whole(
    name: str, whole: Callable[..., Resampled], said: Sequence[str], wanted: Wanted, corpus: Corpus, train: Corpus
) -> Score:
    """A metric with one value per part, and its interval over blocks of examples."""

    def metric(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        return whole(texts, references, np.zeros(len(texts), dtype=np.int64))(_WHOLE)

    blocks = blocks_of(corpus)
    score, baseline = whole(said, wanted(corpus), blocks), guess_score(metric, wanted, corpus, train)
    replicates, units = np.array([score(weights) for weights in replicate_weights()]), len(np.unique(blocks))
    return Score(metric=name, row=estimate(score(_WHOLE), replicates, baseline, len(said), scale="share", units=units))


def _bleu(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> Resampled:
    """BLEU of all texts as one corpus, 0 to 1."""
    statistics = bleu_by_block(said, wanted, blocks)

    def score(weights: np.ndarray) -> float:
        drawn = (one * int(weights[block]) for block, one in statistics.items() if weights[block])
        return sum(drawn, start=BleuStatistics.zero()).score / 100

    return score


def _chrf(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> Resampled:
    """chrF of all texts as one corpus, 0 to 1; its counts of matching character n-grams add up over texts."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=True)
    references = _streams([[comparable(text) for text in right] for right in wanted])
    sums = block_sums(np.array(metric._extract_corpus_statistics([*map(comparable, said)], references)), blocks)

    def score(weights: np.ndarray) -> float:
        drawn = (weights @ sums).round().astype(int).tolist()
        return float(metric._compute_score_from_stats(drawn).score) / 100

    return score


def _streams(wanted: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Transposed references: list i has the i-th reference of each text, or None for texts with fewer references."""
    most = max(map(len, wanted))
    return [[right[index] if index < len(right) else None for right in wanted] for index in range(most)]
