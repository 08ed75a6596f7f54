"""Answers as texts: equal or overlapping after SQuAD's normalisation, found in a passage; what memory and bits tell."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._numbers import Numbers
from ._words import words_of

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(text: str, decompose: bool = False) -> str:
    """Lower case, ASCII punctuation deleted, articles replaced by a space, white space collapsed; in this order.

    With `decompose` accents are first taken apart from their letters (NFD), as ORQA and DPR do.

    Source: [@rajpurkar2016], whose evaluation script this repeats.

    >>> normalise_answer("The  Beatles' (band)!")
    'beatles band'
    """
    text = unicodedata.normalize("NFD", text) if decompose else text
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: str | Sequence[str]) -> bool:
    """Whether the prediction equals an answer after `normalise_answer`.

    Raises:
        UserError: There is no answer to compare with.
    """
    return normalise_answer(prediction) in map(normalise_answer, _several(answers))


def token_f1(prediction: str, answers: str | Sequence[str]) -> float:
    """F1 of the words that prediction and answer share, the best over answers; words as `normalise_answer` leaves them.

    Where either side has no word left it is 1 if both have none, else 0.

    Raises:
        UserError: There is no answer to compare with.
    """
    return max(_f1(normalise_answer(prediction).split(), normalise_answer(one).split()) for one in _several(answers))


def contains_answer(passage: str, answers: str | Sequence[str]) -> bool:
    """Whether an answer's words stand in the passage, one after the other, without regard to case and accents' form.

    Articles count as words, and so does each character of a script without spaces. An answer without words stands
    nowhere.

    Raises:
        UserError: There is no answer.
    """
    words = _words(passage)
    return any(_contiguous(words, _words(answer)) for answer in _several(answers))


def memorisation_ratio(answers: Sequence[str], old: Sequence[str], new: Sequence[str]) -> float:
    r"""\(p_o / (p_o + p_s)\): of queries whose passage contradicts memory, the share that memory wins.

    \(p_o\) and \(p_s\) are the shares of queries answered with the old object and with the passage's; NaN where both
    are 0.

    Args:
        answers: What the model says to each query.
        old: What training said.
        new: What the passage says.

    Raises:
        UserError: Different numbers of them.

    Source: [@longpre2021entity].
    """
    if not len(answers) == len(old) == len(new):
        raise UserError(f"Each answer needs an old and a new object. Got {len(answers)}, {len(old)} and {len(new)}.")
    remembered = sum(exact_match(said, one) for said, one in zip(answers, old, strict=True))
    read = sum(exact_match(said, one) for said, one in zip(answers, new, strict=True))
    return remembered / (remembered + read) if remembered + read else float("nan")


def stored_bits(log_probabilities: Numbers, choices: Numbers | int) -> Float[Tensor, " fact"]:
    r"""\(\log_2 m + \log_2 p(o)\): bits of each fact that a model knows, below 0 where it is surely wrong.

    Args:
        log_probabilities: (fact,), \(\log p(o)\) in nats, renormalised over the m objects of the relation.
        choices: m, of each fact or of all.

    Raises:
        UserError: m below 1, or another number of them than of facts.
    """
    logs = torch.as_tensor(log_probabilities)
    counts = torch.as_tensor(choices, dtype=logs.dtype, device=logs.device)
    if bool((counts < 1).any()) or (counts.ndim and counts.shape != logs.shape):
        raise UserError(f"choices must be at least 1, one for each of {len(logs)} facts or for all. Got {choices}.")
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
    return words_of(unicodedata.normalize("NFD", text).lower(), "characters")


def _contiguous(words: list[str], wanted: list[str]) -> bool:
    size = len(wanted)
    return size > 0 and any(words[start : start + size] == wanted for start in range(len(words) - size + 1))
