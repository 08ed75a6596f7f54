"""Metrics of answers as texts: SQuAD's match and overlap, containment, memorisation, stored bits."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, comparable, running_words, without_punctuation, words_of

Numbers = Tensor | np.ndarray | Sequence[Any]


_PUNCTUATION = str.maketrans("", "", string.punctuation)  # includes Unicode symbols such as $
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(text: str, decompose: bool = False) -> str:
    """Compatibility form, lower case, punctuation deleted, articles replaced by a space, one space between words.

    Each character of a script without spaces is a word. `decompose` separates accents from their letters, as ORQA and
    DPR do.

    Source: the evaluation script of [@rajpurkar2016]; punctuation and scripts without spaces as in that of
    [@lewis2020mlqa].

    >>> normalise_answer("The  Beatles' (band)!"), normalise_answer("北京大学。")
    ('beatles band', '北 京 大 学')
    """
    text = comparable(text, decompose).lower()
    return " ".join(running_words(_ARTICLES.sub(" ", without_punctuation(text.translate(_PUNCTUATION)))))


def exact_match(prediction: str, answers: str | Sequence[str]) -> bool:
    """Whether the prediction equals an answer after `normalise_answer`.

    Raises:
        UserError: There is no answer to compare with.
    """
    return normalise_answer(prediction) in map(normalise_answer, _several(answers))


def token_f1(prediction: str, answers: str | Sequence[str]) -> float:
    """F1 of the words shared by prediction and answer, the best over answers; words as in `normalise_answer`.

    If either side has no words, it is 1 if both have none, else 0.

    Raises:
        UserError: There is no answer to compare with.
    """
    return max(_f1(normalise_answer(prediction).split(), normalise_answer(one).split()) for one in _several(answers))


def contains_answer(passage: str, answers: str | Sequence[str]) -> bool:
    """Whether the passage contains an answer's words in sequence, ignoring case and the encoding of accents.

    Articles count as words, as does each character of a script without spaces. An answer without words is never
    contained.

    Raises:
        UserError: There is no answer.
    """
    words = _words(passage)
    return any(_contiguous(words, _words(answer)) for answer in _several(answers))


def memorisation_ratio(answers: Sequence[str], old: Sequence[str], new: Sequence[str]) -> float:
    r"""\(p_o / (p_o + p_s)\): among queries whose passage contradicts memory, the share that memory wins.

    \(p_o\) and \(p_s\) are the shares of queries answered with the old object and with the passage's; NaN where both
    are 0.

    Args:
        answers: The model's answer to each query.
        old: The answer in training.
        new: The answer in the passage.

    Raises:
        UserError: Their numbers differ.

    Source: [@longpre2021entity].
    """
    if not len(answers) == len(old) == len(new):
        raise UserError(f"Each answer needs an old and a new object. Got {len(answers)}, {len(old)} and {len(new)}.")
    remembered = sum(exact_match(said, one) for said, one in zip(answers, old, strict=True))
    read = sum(exact_match(said, one) for said, one in zip(answers, new, strict=True))
    return remembered / (remembered + read) if remembered + read else float("nan")


def stored_bits(log_probabilities: Numbers, choices: Numbers | int) -> Float[Tensor, " fact"]:
    r"""\(\log_2 m + \log_2 p(o)\): bits that a model stores about each fact; negative if it is confidently wrong.

    Args:
        log_probabilities: (fact,), \(\log p(o)\) in nats, renormalised over the m objects of the relation.
        choices: m for each fact, or one for all.

    Raises:
        UserError: m is below 1, or its number differs from that of the facts.
    """
    logs = torch.as_tensor(log_probabilities)
    counts = torch.as_tensor(choices, dtype=logs.dtype, device=logs.device)
    if bool((counts < 1).any()) or (counts.ndim and counts.shape != logs.shape):
        raise UserError(
            f"choices must be at least 1: one number for all or for each of {len(logs)} facts. Got {choices}."
        )
    return (counts.log() + logs) / np.log(2)


def _several(answers: str | Sequence[str]) -> Sequence[str]:
    several = [answers] if isinstance(answers, str) else answers
    if not several:
        raise UserError("A prediction is compared with at least one answer. Got none.\nLeave the question out.")
    return several


def _f1(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted))


def _words(text: str) -> list[str]:
    return words_of(comparable(text, decompose=True).lower())


def _contiguous(words: list[str], wanted: list[str]) -> bool:
    size = len(wanted)
    return size > 0 and any(words[start : start + size] == wanted for start in range(len(words) - size + 1))
