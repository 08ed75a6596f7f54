"""BLEU's sufficient statistics: they add up over groups of sentences, so that a bootstrap scores each group once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

_ORDER = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class BleuStatistics:
    """n-gram matches and lengths of a group of sentences."""

    correct: tuple[int, ...]  # matched n-grams, n = 1..4
    total: tuple[int, ...]  # n-grams of the hypotheses
    hypothesis_length: int
    reference_length: int  # closest reference of each sentence
    signature: str = ""

    @classmethod
    def zero(cls) -> "BleuStatistics":
        return cls(correct=(0,) * _ORDER, total=(0,) * _ORDER, hypothesis_length=0, reference_length=0)

    def __add__(self, other: "BleuStatistics") -> "BleuStatistics":
        return BleuStatistics(
            correct=tuple(a + b for a, b in zip(self.correct, other.correct, strict=True)),
            total=tuple(a + b for a, b in zip(self.total, other.total, strict=True)),
            hypothesis_length=self.hypothesis_length + other.hypothesis_length,
            reference_length=self.reference_length + other.reference_length,
            signature=self.signature or other.signature,
        )

    def __mul__(self, weight: int) -> "BleuStatistics":
        """The group drawn `weight` times."""
        return BleuStatistics(
            correct=tuple(weight * value for value in self.correct),
            total=tuple(weight * value for value in self.total),
            hypothesis_length=weight * self.hypothesis_length,
            reference_length=weight * self.reference_length,
            signature=self.signature,
        )

    @property
    def score(self) -> float:
        """Corpus BLEU in percent, as sacreBLEU computes it (exponential smoothing); 0 for no sentence."""
        if self.hypothesis_length == 0:
            return 0.0
        return BLEU.compute_bleu(
            list(self.correct), list(self.total), self.hypothesis_length, self.reference_length, smooth_method="exp"
        ).score


def bleu_statistics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False
) -> BleuStatistics:
    """The statistics of a group of sentences, each with one or more references.

    Source: [@papineni2002], [@post2018].
    """
    most = max(map(len, references))
    # sacreBLEU wants as many streams as the most references, with None where a sentence has fewer.
    streams = [[refs[i] if i < len(refs) else None for refs in references] for i in range(most)]
    metric = BLEU(lowercase=lowercase, force=True)
    found = metric.corpus_score(list(hypotheses), streams)
    return BleuStatistics(
        correct=tuple(found.counts),
        total=tuple(found.totals),
        hypothesis_length=found.sys_len,
        reference_length=found.ref_len,
        signature=str(metric.get_signature()),
    )
