"""BLEU from added statistics equals sacreBLEU on the whole corpus."""

import pytest
import sacrebleu

from infoflow.models import BleuStatistics, bleu_statistics

HYPOTHESES = ["the cat sat on the mat", "a dog runs in the park now", "Hello there friend", "he sees a very red house"]
REFERENCES = [
    ["the cat sat on a mat", "a cat was on the mat"],
    ["the dog runs in the park"],
    ["hello there , friend"],
    ["he saw a red house", "he sees the red house", "she sees a very red house"],
]


def streams() -> list[list[str | None]]:
    return [[refs[i] if i < len(refs) else None for refs in REFERENCES] for i in range(3)]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_groups_add_up(cut: int) -> None:
    whole = sacrebleu.corpus_bleu(HYPOTHESES, streams(), lowercase=True).score
    first = bleu_statistics(HYPOTHESES[:cut], REFERENCES[:cut], lowercase=True)
    second = bleu_statistics(HYPOTHESES[cut:], REFERENCES[cut:], lowercase=True)
    assert (first + second).score == pytest.approx(whole)


def test_weights_repeat_a_group() -> None:
    once = bleu_statistics(HYPOTHESES[:2], REFERENCES[:2])
    twice = bleu_statistics(HYPOTHESES[:2] * 2, REFERENCES[:2] * 2)
    assert (once * 2).score == pytest.approx(twice.score)
    assert (once + BleuStatistics.zero()).score == pytest.approx(once.score)
    assert BleuStatistics.zero().score == 0.0


def test_signature_tells_case_and_references() -> None:
    signature = bleu_statistics(HYPOTHESES, REFERENCES, lowercase=True).signature
    assert "nrefs:var" in signature
    assert "case:lc" in signature
