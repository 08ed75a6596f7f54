"""Where words begin and end, in scripts with spaces and without."""

import re
import unicodedata
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

_WORD = re.compile(r"\w+")
_CHINESE_JAPANESE = (
    "\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_THAI_LAO, _MYANMAR, _KHMER = (0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800)
_VARIATIONS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))  # marks that say how a sign looks, as of emoji


def words_of(text: str, unspaced: Literal["pairs", "characters"]) -> list[str]:
    """The words of a text, as it is normalised: runs of letters, digits and `_` with their combining marks.

    Scripts that put no space between words (Han, kana, Thai, Lao, Khmer, Myanmar) give characters, each with its
    marks, or overlapping pairs of them, as lexical indexes do; a character that stands alone is a word then.

    >>> words_of("two 東京都 words", "pairs")
    ['two', '東京', '京都', 'words']
    >>> words_of("दिन", "pairs")
    ['दिन']
    """
    if text.isascii():
        return _WORD.findall(text)
    found: list[str] = []
    for run in _scripts().run.findall(text):
        found += _parts(run, unspaced) if _scripts().unspaced.search(run) else [run]
    return found


def _parts(run: str, unspaced: str) -> list[str]:
    """The words of a run without a space: each stretch of one kind of script by itself."""
    found: list[str] = []
    for stretch in _scripts().stretch.findall(run):
        characters = _scripts().unspaced.findall(stretch)
        if not characters:
            found.append(stretch)
        elif unspaced == "characters" or len(characters) == 1:
            found += characters
        else:
            found += [first + second for first, second in pairwise(characters)]
    return found


class _Scripts(NamedTuple):
    run: re.Pattern[str]  # word characters and marks
    unspaced: re.Pattern[str]  # a character of a script without spaces, with its marks
    stretch: re.Pattern[str]  # of a run, as many such characters as follow each other, or as many others


@cache
def _scripts() -> _Scripts:
    numbers = (number for number in range(0x20000) if number not in _VARIATIONS)
    marks = _ranges([number for number in numbers if unicodedata.category(chr(number)) in ("Mn", "Mc")])
    southern = [number for block in (_THAI_LAO, _MYANMAR, _KHMER) for number in range(*block)]
    letters = _CHINESE_JAPANESE + _ranges([number for number in southern if chr(number).isalpha()])
    one = f"[{letters}][{marks}]*"
    return _Scripts(
        run=re.compile(rf"\w[\w{marks}]*"),
        unspaced=re.compile(one),
        stretch=re.compile(rf"(?:{one})+|(?:(?![{letters}])[\w{marks}])+"),
    )


def _ranges(numbers: list[int]) -> str:
    """Code points in order as the inside of a character class."""
    known = set(numbers)
    starts = [number for number in numbers if number - 1 not in known]
    ends = [number for number in numbers if number + 1 not in known]
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in zip(starts, ends, strict=True))
