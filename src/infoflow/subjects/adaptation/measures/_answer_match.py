"""How well an answer agrees with the right ones, by SQuAD's evaluation."""

from collections.abc import Sequence

from infoflow import objectives
from infoflow.objectives import normalise_answer, token_f1


def exact_match(said: str, wanted: Sequence[str]) -> float:
    """1 if the normalised answer equals one of `wanted`, else 0; without `wanted`, the right answer is none.

    Source: [@rajpurkar2018], the evaluation script of SQuAD 2.0.
    """
    return float(objectives.exact_match(said, _kept(wanted)))


def answer_f1(said: str, wanted: Sequence[str]) -> float:
    """Word overlap with the closest of `wanted`, see `token_f1`; without `wanted`, the right answer is none."""
    return token_f1(said, _kept(wanted))


def _kept(wanted: Sequence[str]) -> Sequence[str]:
    """Answers that are not empty after normalisation; the empty answer if there are none."""
    return [each for each in wanted if normalise_answer(each)] or [""]
