"""Suggestions for a misspelt name."""

import difflib
from collections.abc import Iterable


def nearest(written: str, names: Iterable[str], number: int = 3) -> list[str]:
    """The names most similar to `written`, nearest first; parts after a slash are also matched by themselves.

    >>> nearest("information", ["heads/map", "representations/mutual-information", "training/scores"], 1)
    ['representations/mutual-information']
    """

    def likeness(name: str) -> float:
        parts = [name, name.rpartition("/")[2]]
        contained = written != "" and written in name
        return max(difflib.SequenceMatcher(None, written, part).ratio() for part in parts) + contained

    return sorted(dict.fromkeys(names), key=likeness, reverse=True)[:number]
