"""The single rule for word boundaries in all scripts, with or without spaces between words.

| | scripts with spaces | scripts without |
|---|---|---|
| scripts | all others: Latin, Cyrillic, Arabic, Devanagari, Hangul, … | Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan |
| a word | a run of letters, digits and `_`, with its combining marks | one letter with its combining marks |
| a word of running text | the text between white spaces | one letter, with the punctuation around it |

Combining marks (vowel signs of Devanagari, points of Arabic and Hebrew), joiners and invisible signs (soft hyphens,
direction marks) never end a word. A zero-width space and the Ethiopic wordspace separate words as a space does. Texts
that look the same have the same `comparable` form, which is what scores and searches compare.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

_SPACES = "\u200b\u1361"  # zero-width space, Ethiopic wordspace: not white space for Python
_WORD, _PIECE, _SPACE = re.compile(r"\w+"), re.compile(rf"[^\s{_SPACES}]+"), re.compile(f"[{_SPACES}]")
_HAN = (
    *((0x3005, 0x3008), (0x3021, 0x302A), (0x3038, 0x303C), (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00)),
    (0x20000, 0x323B0),
)
_KANA_BOPOMOFO = (
    *((0x3041, 0x3097), (0x309D, 0x30A0), (0x30A1, 0x30FB), (0x30FC, 0x3130), (0x31A0, 0x31C0), (0x31F0, 0x3200)),
    *((0xFF66, 0xFF9E), (0x1AFF0, 0x1B170)),
)
_OTHER_UNSPACED = (
    *((0x0E00, 0x0E80), (0x0E80, 0x0F00), (0x0F00, 0x1000), (0x1000, 0x10A0)),  # Thai, Lao, Tibetan, Myanmar
    *((0x1780, 0x1800), (0x1950, 0x19E0), (0x1A20, 0x1AB0), (0x1B00, 0x1B80)),  # Khmer, Tai Le and Lue, Tai Tham, Bali
    *((0xA000, 0xA4D0), (0xA980, 0xA9E0), (0xA9E0, 0xAA00), (0xAA60, 0xAAE0)),  # Yi, Javanese, Myanmar, Tai Viet
    *((0x11700, 0x11750), (0x16FE0, 0x18D80), (0x1B170, 0x1B300)),  # Ahom, Tangut and Khitan, Nushu
)
_SIGNS = ((0x2E80, 0x3100), (0x3100, 0x4DC0), (0xFE30, 0xFE50), (0xFF00, 0xFFA0))  # radicals, punctuation, full width
_VARIATIONS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))  # marks that select a sign's appearance, as for emoji
_HALF_WIDTH_MARKS = "\uff9e\uff9f"  # voicing of half-width kana: letters in Unicode, which NFKC turns into marks
_LONGEST_WORD = 64  # characters examined on either side of a position
_LONGEST_MEAN = 15  # mean letters per word; languages have fewer than 10
_OPENING = ("Ps", "Pi")  # opening brackets and quotation marks belong to the following word
_JOINERS = "\u200c\u200d\u180e"  # these occur inside words and change their appearance
_INVISIBLE = "\u00ad\u034f\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # soft hyphen, direction marks, …
_UNSEEN = re.compile(f"[{_INVISIBLE}\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def comparable(text: str, decompose: bool = False) -> str:
    """The text in compatibility form (NFKC) without invisible characters; a zero-width space becomes a space.

    With `decompose`, accents are separated from their letters (NFKD).

    >>> comparable("Ｐａｒｉｓ"), comparable("Donau\\u00addampfer"), comparable("ទៅ\\u200bសាលា")
    ('Paris', 'Donaudampfer', 'ទៅ សាលា')
    """
    if text.isascii():
        return text
    seen = _SPACE.sub(" ", _UNSEEN.sub("", text))
    return unicodedata.normalize("NFKD" if decompose else "NFKC", seen)


def words_of(text: str, unspaced: Literal["characters", "pairs"] = "characters") -> list[str]:
    """The words of a text without its punctuation, in the text's own case and form.

    With `"pairs"`, neighbouring characters of scripts without spaces form overlapping pairs, as in lexical indexes; an
    isolated character is then a word.

    >>> words_of("two 東京都 words")
    ['two', '東', '京', '都', 'words']
    >>> words_of("two 東京都 words", "pairs")
    ['two', '東京', '京都', 'words']
    >>> words_of("दिन, день")
    ['दिन', 'день']
    """
    if text.isascii():
        return _WORD.findall(text)
    found: list[str] = []
    for run in _scripts().run.findall(text):
        found += _parts(run, unspaced) if _scripts().unspaced.search(run) else [run]
    return found


def words_and_signs(text: str) -> list[str]:
    """The words of a text, and each other visible character, such as a comma, as a separate item.

    >>> words_and_signs("L'eau, 东京。")
    ['L', "'", 'eau', ',', '东', '京', '。']
    """
    return [match[0] for match in _scripts().word_or_sign.finditer(text)]


def running_words(text: str) -> list[str]:
    """The words of running text with attached punctuation.

    >>> running_words("Yes, it is. 我们在Google工作。")
    ['Yes,', 'it', 'is.', '我', '们', '在', 'Google', '工', '作。']
    """
    if text.isascii():
        return text.split()
    return [text[start:end] for start, end in running_word_spans(text)]


def running_word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each word of running text, in characters."""
    spans: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(text):
        starts = [piece.start(), *_starts_inside(piece[0], piece.start()), piece.end()]
        spans += pairwise(starts)
    return spans


def is_unspaced(word: str) -> bool:
    return not word.isascii() and _scripts().unspaced.match(word) is not None


def is_inner(char: str) -> bool:
    """Whether the character never ends a word: a combining mark, a joiner or an invisible sign."""
    return not char.isascii() and _scripts().inner.match(char) is not None


def writes_no_spaces(text: str) -> bool:
    """Whether a text has a letter, mark, digit or sign of a script that puts no spaces between words.

    >>> writes_no_spaces("猫"), writes_no_spaces("。"), writes_no_spaces("cat.")
    (True, True, False)
    """
    return not text.isascii() and _scripts().any_sign.search(text) is not None


def inside_word(text: str, place: int) -> bool:
    """Whether a word extends to both sides of a position in the text.

    >>> inside_word("north", 2), inside_word("北京大学", 2)
    (True, False)
    """
    start = max(place - _LONGEST_WORD, 0)
    found = _scripts().word.finditer(text[start : place + _LONGEST_WORD])
    return any(match.start() < place - start < match.end() for match in found)


def spacing_of(texts: Iterable[str]) -> Literal["spaces", "han", "none"]:
    """`"spaces"` if texts separate words by spaces; otherwise `"han"` for Chinese and `"none"` for other scripts.

    Texts count as without spaces if half of the words are characters of scripts without spaces. They count as Chinese
    if four fifths of these characters are Chinese. Other scripts without spaces are recognised by their long runs, of
    more than 15 letters on average.
    """
    words = [word for text in texts for word in words_of(comparable(text))]
    unspaced = [word[0] for word in words if is_unspaced(word)]
    if not unspaced or 2 * len(unspaced) < len(words):
        return "none" if sum(map(len, words)) > _LONGEST_MEAN * len(words) else "spaces"
    han = sum(any(first <= ord(char) < stop for first, stop in _HAN) for char in unspaced)
    return "han" if 5 * han >= 4 * len(unspaced) else "none"


def is_punctuation(text: str) -> bool:
    """Whether a text consists of Unicode punctuation only; False for an empty text."""
    return bool(text) and all(unicodedata.category(sign).startswith("P") for sign in text)


def without_punctuation(text: str) -> str:
    return text.translate(_PUNCTUATION)


class _Punctuation(dict[int, int | None]):
    """A table for `str.translate` that deletes Unicode punctuation and keeps the rest."""

    def __missing__(self, character: int) -> int | None:
        self[character] = None if is_punctuation(chr(character)) else character
        return self[character]


_PUNCTUATION = _Punctuation()


def _starts_inside(piece: str, offset: int) -> list[int]:
    """Starts of the words inside a piece without white space, except its first word."""
    if piece.isascii() or not _scripts().unspaced.search(piece):
        return []
    starts: list[int] = []
    before: bool | None = None  # whether the last word was in a script without spaces; None: no word yet
    for match in _scripts().word.finditer(piece):
        unspaced = is_unspaced(match[0])
        if before or (unspaced and before is not None):
            start = match.start()
            while unicodedata.category(piece[start - 1]) in _OPENING:
                start -= 1
            starts.append(offset + start)
        before = unspaced
    return starts


def _parts(run: str, unspaced: str) -> list[str]:
    """The words of a run of word characters; scripts with and without spaces are handled separately."""
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
    inner: re.Pattern[str]
    run: re.Pattern[str]  # word characters and marks
    unspaced: re.Pattern[str]  # a character of a script without spaces, with its marks
    stretch: re.Pattern[str]  # in a run: the longest stretch of such characters, or of others
    word: re.Pattern[str]  # in a run: one such character, or the longest stretch of others
    word_or_sign: re.Pattern[str]
    any_sign: re.Pattern[str]  # a letter, mark, digit or punctuation of a script without spaces


@cache
def _scripts() -> _Scripts:
    numbers = (number for number in range(0x20000) if number not in _VARIATIONS)
    marks = _ranges([number for number in numbers if unicodedata.category(chr(number)) in ("Mn", "Mc")])
    marks += _HALF_WIDTH_MARKS + _JOINERS + _INVISIBLE
    blocks = (*_HAN, *_KANA_BOPOMOFO, *_OTHER_UNSPACED)
    letters = "".join(_ranges([number for number in range(*block) if _is_letter(chr(number))]) for block in blocks)
    one = f"[{letters}][{marks}]*"
    others = rf"(?![{letters}])\w(?:(?![{letters}])[\w{marks}])*"
    return _Scripts(
        inner=re.compile(f"[{marks}]"),
        run=re.compile(rf"\w[\w{marks}]*"),
        unspaced=re.compile(one),
        stretch=re.compile(rf"(?:{one})+|(?:(?![{letters}])[\w{marks}])+"),
        word=re.compile(rf"{one}|{others}"),
        word_or_sign=re.compile(rf"{one}|{others}|[^\w\s][{marks}\ufe00-\ufe0f]*"),
        any_sign=re.compile(f"[{''.join(f'{chr(first)}-{chr(stop - 1)}' for first, stop in (*blocks, *_SIGNS))}]"),
    )


def _is_letter(char: str) -> bool:
    return unicodedata.category(char) in ("Lo", "Lm", "Nl") or char >= "\U0002fa20"  # newer than Python's Unicode


def _ranges(numbers: list[int]) -> str:
    """The code points, which must be in order, in the notation for a regular expression's character class."""
    known = set(numbers)
    starts = [number for number in numbers if number - 1 not in known]
    ends = [number for number in numbers if number + 1 not in known]
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in zip(starts, ends, strict=True))
