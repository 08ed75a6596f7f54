"""Corpus BLEU with the signature that makes it comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

from infoflow.foundation import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Bleu:
    """BLEU in percent, and sacreBLEU's signature of how it was computed."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU of detokenised text, one reference per hypothesis.

    Raises:
        UserError: No sentence, or unequal numbers of hypotheses and references.

    Source: [@papineni2002], [@post2018].
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(
            "BLEU needs one reference for each hypothesis, and at least one of both. "
            f"Got {len(hypotheses)} hypotheses and {len(references)} references."
        )
    # `force` silences a warning for output that looks tokenised; the signature still names the tokenizer.
    metric = BLEU(force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Bleu(score=score.score, signature=str(metric.get_signature()))
