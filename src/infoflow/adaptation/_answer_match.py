"""How well an answer agrees with the right ones, as SQuAD's evaluation has it."""

from collections.abc import Sequence

from infoflow import retrieval
from infoflow.retrieval import normalise_answer, token_f1


def exact_match(said: str, wanted: Sequence[str]) -> float:
    """1 where the normalised answer equals that of one of `wanted`, else 0; without `wanted`, no answer is right.

    Source: [@rajpurkar2018], the evaluation script of SQuAD 2.0.
    """
    return float(retrieval.exact_match(said, _kept(wanted)))


def answer_f1(said: str, wanted: Sequence[str]) -> float:
    """Overlap in words with the nearest of `wanted`, see `token_f1`; without `wanted`, no answer is right."""
    return token_f1(said, _kept(wanted))


def _kept(wanted: Sequence[str]) -> Sequence[str]:
    """Answers of which normalising leaves something; the empty answer where there are none."""
    return [each for each in wanted if normalise_answer(each)] or [""]
