"""The running text behind a list of words, and the character at which each word begins."""

import re
from collections.abc import Sequence
from functools import cache

from infoflow.foundation import writes_no_spaces

_SPACE = re.compile(r"\s*")


def running_text(words: Sequence[str]) -> tuple[str, list[int]]:
    """Words as one text, and the character at which each begins.

    Words are separated by a blank, except next to a character of a script without spaces (Han, kana, Thai, Lao, Khmer,
    Myanmar, Tibetan), where most boundaries have none.

    >>> running_text(["two", "cats", "."])
    ('two cats .', [0, 4, 9])
    >>> running_text(["我", "用", "Python", "。"])
    ('我用Python。', [0, 1, 2, 8])
    """
    text, starts = "", []
    for word in words:
        text += "" if not text or writes_no_spaces(text[-1:] + word[:1]) else " "
        starts.append(len(text))
        text += word
    return text, starts


def word_starts(text: str, words: Sequence[str]) -> list[int] | None:
    """The character at which each word begins; None unless the text is these words with optional white space.

    >>> word_starts("Don't go.", ["Do", "n't", "go", "."])
    [0, 2, 6, 8]
    """
    starts, end = [], 0
    for word in words:
        start = end if text.startswith(word, end) else end + len(_SPACE.match(text, end)[0])  # type: ignore[index]
        if not text.startswith(word, start):
            return None
        starts.append(start)
        end = start + len(word)
    return None if text[end:].strip() else starts


def shared_out(surface: str, words: Sequence[str]) -> list[int]:
    """Positions in the surface of a contraction at which its words begin.

    The cuts maximise the agreement of the parts with the words, by shared initial and final characters: `du` is `d` of
    `de` and `u` of `le`.

    >>> shared_out("vámonos", ["vamos", "nos"]), shared_out("im", ["in", "dem"])
    ([0, 4], [0, 1])
    """

    @cache
    def best(word: int, start: int) -> tuple[int, tuple[int, ...]]:
        if word == len(words) - 1:
            return _agreement(surface[start:], words[word]), (start,)
        later = range(min(start + 1, len(surface)), len(surface) + 1)
        found = [(best(word + 1, cut), _agreement(surface[start:cut], words[word])) for cut in later]
        score, cuts = max(((rest + own, cuts) for (rest, cuts), own in found), key=lambda each: each[0])
        return score, (start, *cuts)

    return list(best(0, 0)[1])


def _agreement(part: str, word: str) -> int:
    if not part:
        return -1
    shared = 0
    for pairs in (zip(part, word, strict=False), zip(reversed(part), reversed(word), strict=False)):
        for one, other in pairs:
            if one.lower() != other.lower():
                break
            shared += 1
    return shared
