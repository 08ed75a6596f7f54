"""How well an answer agrees with the right ones, as SQuAD's evaluation has it."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised_answer(text: str) -> str:
    """Lower-cased, without punctuation and English articles, one blank between words.

    Source: [@rajpurkar2018], the evaluation script of SQuAD 2.0.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(said: str, wanted: Sequence[str]) -> float:
    """1 where the normalised answer equals that of one of `wanted`, else 0; without `wanted`, no answer is right."""
    return float(normalised_answer(said) in {normalised_answer(each) for each in _kept(wanted)})


def answer_f1(said: str, wanted: Sequence[str]) -> float:
    """Overlap in words with the nearest of `wanted`: harmonic mean of precision and recall, 0 to 1.

    Where the answer or what is wanted has no word, 1 if both have none, else 0.
    """
    return max(_overlap(normalised_answer(said).split(), normalised_answer(each).split()) for each in _kept(wanted))


def _kept(wanted: Sequence[str]) -> Sequence[str]:
    """Answers of which normalising leaves something; the empty answer where there are none."""
    return [each for each in wanted if normalised_answer(each)] or [""]


def _overlap(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = (Counter(said) & Counter(wanted)).total()
    return 2 * common / (len(said) + len(wanted))
