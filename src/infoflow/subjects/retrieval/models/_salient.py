"""Salient spans: the parts of a sentence that state facts, by annotation or by rule."""

import re
from collections.abc import Sequence

OBJECT = "object"
"""The role of the object's words in a fact's sentence."""

_DATE = re.compile(
    r"(january|february|march|april|may|june|july|august|september|october|november|december|\d{1,2}|1\d{3}|20\d{2})",
    re.IGNORECASE,
)
_YEAR = re.compile(r"1\d{3}|20\d{2}")


def salient_spans(words: Sequence[str], tags: Sequence[str] | None = None) -> list[tuple[int, int]]:
    """First word and end of each salient span.

    With tags: runs of words tagged `object` if there are any, else runs of one tag. Without tags, by rule: dates (a run
    of months, days and years with a year in it), and runs of capitalised words that do not begin the sentence.
    """
    if tags is not None:
        wanted = [tag if OBJECT not in tags or tag == OBJECT else "" for tag in tags]
        return _runs(wanted)
    dates = [
        (start, end)
        for start, end in _runs(["date" if _DATE.fullmatch(word) else "" for word in words])
        if any(_YEAR.fullmatch(word) for word in words[start:end])
    ]
    inside = {place for start, end in dates for place in range(start, end)}
    names = ["name" if place and place not in inside and word[:1].isupper() else "" for place, word in enumerate(words)]
    return sorted([*dates, *_runs(names)])


def _runs(tags: Sequence[str]) -> list[tuple[int, int]]:
    """Runs of one tag that is not empty."""
    runs: list[tuple[int, int]] = []
    for place, tag in enumerate(tags):
        if tag and place and tags[place - 1] == tag:
            runs[-1] = (runs[-1][0], place + 1)
        elif tag:
            runs.append((place, place + 1))
    return runs
