"""How well texts that were written agree with those that are right."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from infoflow.corpus import Corpus
from infoflow.foundation import NUM_BLOCKS, replicate_weights
from infoflow.models import BleuStatistics, bleu_statistics, rouge
from infoflow.results import estimate

from ._guesses import Wanted, guess_score, mean_of, mean_score
from ._scoring import blocks_of
from ._task import Score

TextMetric = Literal["rougeL", "rouge1", "rouge2", "bleu", "chrf", "exact_match"]
"""ROUGE-L, 1 and 2: F of the longest common subsequence, of words and of pairs of words, of the nearest reference
([@lin2004]). BLEU and chrF ([@popovic2015]) of the whole part, against all references. Whether it is one of them."""


def text_scores(said: Sequence[str], wanted: Wanted, corpus: Corpus, train: Corpus) -> list[Score]:
    """All metrics, 1 the best, without regard to case; the baseline is the better of two guesses: the first sentence of
    the source, and the most frequent text of training.

    ROUGE is that of rouge-score with stemming (English words and digits alone count), BLEU and chrF sacreBLEU's.
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
    """1 where the text is one of `wanted`, without regard to case and spacing, else 0."""
    return float(_plain(said) in map(_plain, wanted))


def corpus_bleu(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """BLEU of all texts together, 0 to 1."""
    return bleu_statistics(said, wanted, lowercase=True).score / 100


def corpus_chrf(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """chrF of all texts together, 0 to 1."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF(lowercase=True).corpus_score(list(said), _streams(wanted)).score) / 100


def _of_whole(
    metric: str, of: Any, said: Sequence[str], wanted: Sequence[Sequence[str]], corpus: Corpus, baseline: float
) -> Score:
    """A metric of which a part has one value, with its interval over blocks of examples."""
    blocks = blocks_of(corpus)
    value, replicates = of(said, wanted, blocks)
    units = len(np.unique(blocks))
    return Score(metric=metric, row=estimate(value, replicates, baseline, len(said), scale="share", units=units))


def _bleu(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """BLEU from its statistics of each block, and of every resample of blocks."""
    parts = {int(block): _part(said, wanted, blocks == block) for block in np.unique(blocks)}
    statistics = {block: bleu_statistics(*part, lowercase=True) for block, part in parts.items()}

    def score(weights: np.ndarray) -> float:
        drawn = (one * int(weights[block]) for block, one in statistics.items() if weights[block])
        return sum(drawn, start=BleuStatistics.zero()).score / 100

    return score(np.ones(NUM_BLOCKS)), np.array([score(weights) for weights in replicate_weights()])


def _chrf(said: Sequence[str], wanted: Sequence[Sequence[str]], blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """chrF likewise: its counts of matching n-grams of characters add up over texts."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=True)
    counts = np.array(metric._extract_corpus_statistics(list(said), _streams(wanted)), dtype=np.float64)
    sums = np.zeros((NUM_BLOCKS, counts.shape[1]))
    np.add.at(sums, blocks, counts)

    def score(weights: np.ndarray) -> float:
        drawn = (weights @ sums).round().astype(int).tolist()
        return float(metric._compute_score_from_stats(drawn).score) / 100

    return score(np.ones(NUM_BLOCKS)), np.array([score(weights) for weights in replicate_weights()])


def _part(
    said: Sequence[str], wanted: Sequence[Sequence[str]], kept: np.ndarray
) -> tuple[list[str], list[Sequence[str]]]:
    rows = np.flatnonzero(kept)
    return [said[row] for row in rows], [wanted[row] for row in rows]


def _streams(wanted: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """As many references of all texts as the most of any, None where a text has fewer."""
    most = max(map(len, wanted))
    return [[right[place] if place < len(right) else None for right in wanted] for place in range(most)]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
