"""Guesses the encoding of bytes that are not UTF-8, from the text that they would give."""

import unicodedata
from collections import Counter

_SHOWN = 60  # characters of a line in a message
_MOST = 4  # encodings named
_LEAST = 0.75  # of the letters must be common ones
_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
# Python's name, iconv's, and for a two-byte encoding the codec and lead bytes of its common characters
_CANDIDATES = (
    ("gb18030", "GB18030", ("gb2312", 0xB0, 0xD7)),
    ("big5", "BIG5", ("big5", 0xA4, 0xC6)),
    ("cp932", "SHIFT_JIS", ("shift_jis", 0x82, 0x98)),
    ("euc_jp", "EUC-JP", ("shift_jis", 0x82, 0x98)),
    ("cp949", "CP949", ("euc_kr", 0xB0, 0xC8)),
    ("cp1251", "WINDOWS-1251", None),
    ("koi8_r", "KOI8-R", None),
    ("cp1252", "WINDOWS-1252", None),
    ("cp1250", "WINDOWS-1250", None),
    ("cp1253", "WINDOWS-1253", None),
    ("cp1255", "WINDOWS-1255", None),
    ("cp1256", "WINDOWS-1256", None),
    ("cp874", "CP874", None),
)
_ALPHABETS = {"CP1251": "CYRILLIC", "KOI8_R": "CYRILLIC", "CP1252": "LATIN", "CP1250": "LATIN", "CP1253": "GREEK"} | {
    "CP1255": "HEBREW",
    "CP1256": "ARABIC",
    "CP874": "THAI",
}
_WESTERN = frozenset("ßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœÀÁÂÄÅÆÇÈÉÊËÍÎÑÓÔÖØÚÛÜŒ")
_CENTRAL = frozenset("áčďéěíňóřšťúůýžąćęłńśźżőűăâîșțşţđäöüÁČĎÉĚÍŇÓŘŠŤÚŮÝŽĄĆĘŁŃŚŹŻŐŰĂÂÎŞŢĐÄÖÜ")
_MARKS_OF_TEXT = frozenset("«»“”„‘’‚–—…·•°§€£±©®№¿¡ \xa0´ªº")


def readings(data: bytes) -> list[tuple[str, str]]:
    """Possible encodings, by iconv's names, most likely first, each with the decoded text."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return [(name, _line(data.decode(name, "replace")))]
    if b"\x00" in data:
        return _two_bytes(data)
    found = []
    for codec, name, common in _CANDIDATES:
        try:
            text = data.decode(codec)
        except UnicodeDecodeError as error:
            if error.start < len(data) - 4:  # the sample may end inside a character
                continue
            text = data[: error.start].decode(codec)
        if (score := _likelihood(text, codec, common)) >= _LEAST:
            found.append((score, name, text))
    found.sort(key=lambda each: -each[0])
    best = found[0][0] if found else 0.0
    return [(name, _line(text)) for score, name, text in found if score >= best - 0.15][:_MOST]


def advice(data: bytes) -> str:
    """Advice for a file with these bytes."""
    if not (found := readings(data)):
        return "Convert it to UTF-8 from its original encoding."
    listed = "".join(f"\n  {name}: {text}" for name, text in found)
    return (
        f"Convert it from the encoding that shows this line correctly: iconv -f NAME -t UTF-8{listed}\n"
        "If none does, it uses another encoding."
    )


def _two_bytes(data: bytes) -> list[tuple[str, str]]:
    """UTF-16 without a byte order mark, in the byte order that gives usual characters."""
    found = []
    for name in ("UTF-16LE", "UTF-16BE"):
        text = data[: len(data) // 2 * 2].decode(name, "replace")
        share = sum(char in "\t\r\n" or (char.isprintable() and _is_usual(char)) for char in text) / max(len(text), 1)
        found.append((share, name, text))
    share, name, text = max(found)
    return [(name, _line(text))] if share > 0.9 else []


def _is_usual(char: str) -> bool:
    if unicodedata.name(char, "").startswith(("LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "THAI", "HANGUL")):
        return True
    return (
        ord(char) < 128 or char in _MARKS_OF_TEXT or any(_is_common(char, *each) for _, _, each in _CANDIDATES if each)
    )


def _line(text: str) -> str:
    """The first line with a character that is not ASCII, shortened around it."""
    lines = [" ".join(line.split()) for line in text.replace("\ufeff", "").splitlines()]
    line = next((line for line in lines if not line.isascii()), lines[0] if lines else "")
    place = max(next((at for at, char in enumerate(line) if ord(char) > 127), 0) - _SHOWN // 3, 0)
    shown = line[place : place + _SHOWN]
    return "".join(char for char in shown if char.isprintable())


def _likelihood(text: str, codec: str, common: tuple[str, int, int] | None) -> float:
    """Share of common characters among those beyond ASCII, if a text had this encoding."""
    foreign = [char for char in text if ord(char) > 127]
    if not foreign:
        return 0.0
    if any(unicodedata.category(char) in ("Cc", "Co", "Cn") for char in foreign):
        return 0.0
    if common is not None:
        return sum(_is_common(char, *common) for char in foreign) / len(foreign)
    if codec in ("cp1252", "cp1250"):
        usual = _WESTERN if codec == "cp1252" else _CENTRAL
        letters = sum(char.isalpha() for char in text)
        share = sum(char in usual or char in _MARKS_OF_TEXT for char in foreign) / len(foreign)
        return share * (sum(char.isalpha() for char in foreign) <= 0.35 * max(letters, 1))
    return _of_alphabet(text, foreign, _ALPHABETS[codec.upper()])


def _is_common(char: str, codec: str, first: int, last: int) -> bool:
    try:
        lead = char.encode(codec)[0]
    except UnicodeEncodeError:
        return False
    return first <= lead <= last or "\u3000" <= char <= "\u30ff" or "\uff00" <= char <= "\uffef"


def _of_alphabet(text: str, foreign: list[str], alphabet: str) -> float:
    """Share of letters of one alphabet in words of no other, with capitals at the beginning of words or throughout."""
    kinds = Counter(unicodedata.name(char, "").startswith(alphabet) for char in foreign if char not in _MARKS_OF_TEXT)
    words = [word for word in text.split() if any(ord(char) > 127 for char in word)]
    odd = sum(
        (word != word.lower() and word != word.upper() and not word[1:].islower())
        or any(char.isascii() and char.isalpha() for char in word)
        for word in words
    )
    return kinds[True] / max(kinds.total(), 1) * (1 - odd / max(len(words), 1))
