"""Positions of answers in passages, and the window to read of a passage that is too long for a reader."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoflow.foundation import UserError, inside_word

from ._passages import Passages


class AnswerTokens(NamedTuple):
    """First and end token of the answers in a passage's text."""

    start: int
    end: int


def answer_places(passages: Passages, tokenizer: Any, answers: Mapping[int, Sequence[str]]) -> dict[int, AnswerTokens]:
    """The tokens from the first to the last answer of each passage; passages without their answers are left out.

    An answer's first occurrence as whole words counts, ignoring case.

    Raises:
        UserError: There are answers for an unknown passage, or the tokenizer gives no token offsets.
    """
    beyond = [id for id in answers if not 0 <= id < len(passages)]
    if beyond:
        raise UserError(
            f"Answers must refer to passages 0 to {len(passages) - 1}. Got passage {beyond[0]}.\n"
            "Number them in the order of the store."
        )
    if answers and not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"Cutting passages around their answers needs a fast tokenizer, which reports token positions. Got "
            f"{type(tokenizer).__name__}.\nLeave answers out, or convert the tokenizer."
        )
    found = {}
    for id, wanted in answers.items():
        text = passages[id].text
        spans = [span for answer in wanted if (span := _span(text, answer)) is not None]
        if spans:
            options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
            offsets = np.array(tokenizer(text, verbose=False, **options)["offset_mapping"]).reshape(-1, 2)
            if (place := _tokens(offsets, spans)) is not None:
                found[id] = place
    return found


def window(tokens: np.ndarray, room: int, place: AnswerTokens | None) -> np.ndarray:
    """At most `room` consecutive tokens: the first ones, or a window centred on the answers if they would be cut off.

    If the answers are longer than `room`, their beginning is kept.

    >>> window(np.arange(10), 4, Place(6, 7)).tolist(), window(np.arange(10), 4, None).tolist()
    ([5, 6, 7, 8], [0, 1, 2, 3])
    """
    room = max(room, 0)
    if place is None or place.end <= room or len(tokens) <= room:
        return tokens[:room]
    start = min(max((place.start + place.end - room) // 2, 0), len(tokens) - room)
    start = min(start, place.start)
    return tokens[start : start + room]


def _span(text: str, answer: str) -> tuple[int, int] | None:
    """Characters of the first occurrence of the answer as whole words."""
    low, wanted = text.lower(), answer.strip().lower()
    if not wanted or len(low) != len(text):  # case folding changes the length: offsets would be wrong
        low, wanted = text, answer.strip()
    start = low.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        if not inside_word(low, start) and not inside_word(low, end):
            return start, end
        start = low.find(wanted, start + 1)
    return None


def _tokens(offsets: np.ndarray, spans: Iterable[tuple[int, int]]) -> AnswerTokens | None:
    """The tokens from the first character of all spans to the last one."""
    spans = list(spans)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    inside = np.flatnonzero((offsets[:, 0] < last) & (offsets[:, 1] > first))
    return AnswerTokens(int(inside[0]), int(inside[-1]) + 1) if len(inside) else None
