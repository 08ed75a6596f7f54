"""The position of an answer in a passage: at the annotated character, or else nearby."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infoflow.corpus import Corpus, Sentence
from infoflow.foundation import UserError, current_display

NOWHERE = "answer not in the passage"


class AnswerCharacters(NamedTuple):
    """Characters of a passage, from `start` to before `end`."""

    start: int
    end: int


def place_of(text: str, answer: str, start: int) -> AnswerCharacters | None:
    """The position of `answer` at `start`, or else the nearest one, ignoring case and spacing.

    None if the passage does not contain it. White space around the answer is not part of the position.
    """
    words = answer.split()
    start += len(answer) - len(answer.lstrip())
    if not words:
        return None
    if text.startswith(answer.strip(), start):
        return AnswerCharacters(start, start + len(answer.strip()))
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    found = [AnswerCharacters(*match.span()) for match in pattern.finditer(text)]
    return min(found, key=lambda place: abs(place.start - start), default=None)


def first_place(sentence: Sentence) -> AnswerCharacters | None:
    """The position of the first of a question's answers that occurs in the passage."""
    starts = sentence.answer_starts or [0] * len(sentence.answers or ())
    places = (
        place_of(sentence.text, answer, start) for answer, start in zip(sentence.answers or (), starts, strict=True)
    )
    return next((place for place in places if place is not None), None)


def askable_spans(corpus: Corpus) -> tuple[Corpus, Mapping[str, int]]:
    """The questions whose answer occurs in the passage or that have none, and the number of others, by reason.

    Raises:
        UserError: The corpus has no questions with answers, or no answer occurs in its passage.
    """
    corpus.require("question", "answers")
    asked = [(one, first_place(one)) for one in corpus]
    kept = np.array([not one.answers or place is not None for one, place in asked])
    if moved := sum(_is_moved(one, place) for one, place in asked if place is not None):
        current_display().note(
            f"{corpus.name}: in {moved:,} of {len(corpus):,} questions the answer is not at the stated character; "
            "the nearest occurrence is used."
        )
    if not kept.any():
        raise UserError(
            f"The answers of {corpus.name} must occur in its passages. None of {len(corpus):,} does, such as "
            f"{(corpus[0].answers or [''])[0][:60]!r}.\nUse the passage as text, or tune a model that "
            "generates answers."
        )
    if kept.all():
        return corpus, {}
    left_out = int((~kept).sum())
    current_display().note(f"{corpus.name}: {left_out} questions whose answer is not in the passage were left out.")
    return corpus.select(kept), {NOWHERE: left_out}


def _is_moved(sentence: Sentence, place: AnswerCharacters) -> bool:
    """Whether the position differs from all annotated ones, apart from white space."""
    starts = sentence.answer_starts
    gaps = (sentence.text[start : place.start] for start in starts or () if start <= place.start)
    return bool(starts) and not any(not gap.strip() for gap in gaps)
