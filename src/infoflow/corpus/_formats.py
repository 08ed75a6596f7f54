"""Recognising files of other programs, and the encoding of a text file."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

TAKE_IT_OUT = "Extract its text, one sentence per line."
_TABLE = "Write its column of sentences to a file, one sentence per line."

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive or a document of Word, Excel or LibreOffice"),
    (b"\xd0\xcf\x11\xe0", "a document of Word or Excel"),
    (b"{\\rtf", "a document in RTF"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"PAR1", "a Parquet table (whose name must end in .parquet)"),
    (b"ARROW1", "an Arrow or Feather table"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"Obj\x01", "an Avro table"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "a database of SQLite"),
    (b"\x7fELF", "a program"),
    (b"version https://git-lfs", "a Git LFS pointer whose file was not fetched"),
)

# Suffixes that are also codes of large languages (cs, pl, ts, ml) are left out, as aligned files are named by language.
_NAMED = {
    "marked up (XML)": "xml eaf tei tmx xliff xlf ttml svg rss html htm xhtml sgm sgml smi",
    "LaTeX": "tex ltx sty bib",
    "a document in another markup": "rst org adoc textile wiki",
    "subtitles": "srt vtt ass ssa sbv sub lrc",
    "translated messages or settings": "po pot properties strings ini cfg toml yaml yml",
    "a log": "log",
    "source code": "py ipynb js jsx tsx java c h cc cpp hpp go rs rb php sql css lua swift scala bash bat patch diff",
    "annotated text": "mrg ann textgrid cha m2 arff conllx conll09 v4_gold_conll v4_auto_conll",
    "mail": "eml mbox",
}
_SUFFIXES = {suffix: what for what, listed in _NAMED.items() for suffix in listed.split()}


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A format in which more than `share` of a file's lines match `pattern` (None: in which its first line matches)."""

    pattern: re.Pattern[str]
    share: float | None
    what: str  # follows "it"
    advice: str = TAKE_IT_OUT


def _looks(share: float | None, pattern: str, what: str, advice: str = TAKE_IT_OUT) -> LinePattern:
    return LinePattern(pattern=re.compile(pattern, re.IGNORECASE), share=share, what=what, advice=advice)


_DATE = r"(?:\d{4}-\d\d-\d\d|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\d{1,2}/[a-z]{3}/\d{4}|[a-z]{3} +\d{1,2})"
_CODE = (
    r"(?:import|from \S+ import|def|class|return|elif|func|function|const|let|var|public|private|package|using) "
    r".*[^.!?]$|#include|(?:if|for|while|else|try|except)\b.*:$|.*(?:[{}]|\b[a-z_]\w*\([^()]*\);)\s*$|"
    r"(?:insert into|create table|select .* from|update .* set|delete from|drop table)\b.*;\s*$"
)
_MARKUP = "is marked up (XML, HTML, TMX, ...)"
_SUBWORDS = r".*\w@@(?:\s|$)|.*(?:^|\s)##\w|.*▁"

LINE_PATTERNS: tuple[LinePattern, ...] = (
    _looks(None, r"\s*<(?:\?xml|!doctype|!--|html|tmx|xliff|tei|srcset|refset)\b", _MARKUP),
    _looks(0.5, r"\s*<(?:[?!/]|(?!unk>)[a-z][\w:.-]*(?:\s+[\w:.-]+\s*=|\s*/?>))", _MARKUP),
    _looks(0.02, r"\s*<[?!/]?[a-z][^<>]*[=/][^<>]*>\s*$|\s*</", _MARKUP),
    _looks(None, r"\\documentclass|\\begin\{|\\chapter|\\section", "is LaTeX"),
    _looks(0.15, r"\s*(?:\\[a-z]+[\[{*]|%)", "is LaTeX"),
    _looks(None, r"WEBVTT|\[Script Info\]", "contains subtitles with timestamps"),
    _looks(
        0.1,
        r"\d*:?\d{1,2}:\d\d[,.]\d{2,3}(?: --> |,\d)|Dialogue: |\{\d+\}\{\d+\}|\[\d\d:\d\d[.:]\d\d",
        "contains subtitles with timestamps",
    ),
    _looks(
        0.5,
        rf".{{0,40}}?{_DATE}[T,:\s]+\d{{1,2}}:\d\d",
        "has a date and time at the start of every line (a log, a chat)",
    ),
    _looks(None, r"#!|<\?php|diff --git |#include ", "is source code"),
    _looks(0.0, r".*\x1b[$(]", "is in ISO-2022, not UTF-8", "Convert it: iconv -f ISO-2022-JP -t UTF-8."),
    _looks(0.1, r"\s*(?:\{\{|\{\||\|-\s*$)|.*(?:\[\[[^\[\]]+\]\]|'''\w)", "is in the markup of a wiki"),
    _looks(0.0, r"\s*\.\. [\w-]+::|#\+[a-z_]+:", "is a document in another markup"),
    _looks(None, r"@\w+\s*\{", "is a bibliography (BibTeX)"),
    _looks(None, r"from:? .*\S@\S|(?:return-path|received|message-id|delivered-to|mime-version): ", "is mail"),
    _looks(0.4, _CODE, "is source code"),
    _looks(
        0.1,
        r'(?:msgid|msgstr|msgctxt)\b.*"$',
        "is a gettext message catalogue",
        "Write the messages into a .tsv of two columns.",
    ),
    _looks(0.8, r'\s*(?:[#;!]|/\*|\[.+\]\s*$|"?[\w.-]+"?\s*=\s*\S)', "has a name and a value on every line"),
    _looks(0.9, r"\s*(?:(?:[#-] ?)?[\w.-]+:(?:\s|$)|---\s*$)", "has a name and a colon at the start of every line"),
    _looks(0.0, r"\s*\|?\s*:?-{3,}:?\s*\|[-:| ]*$|\s*[|+][-=+|: ]{3,}[|+]\s*$", "contains a text table", _TABLE),
    _looks(0.5, r"\s*\|.*\|.*\|", "contains a text table", _TABLE),
    _looks(0.0, r"\s*(?:```|~~~)", "contains code blocks (Markdown)"),
    _looks(
        None,
        r"# (?:sent_id|text|newdoc|global\.columns)\b|#begin document",
        "is a treebank",
        "Name it .conllu or .conll.",
    ),
    _looks(0.6, r"\s*\(\s*[^\s()]*\s*\([^\s()]+", "contains bracketed trees"),
    _looks(0.3, r".*\S ?\|\|\| ?\S", "has columns between |||", "Save it as .tsv, with tabs between the columns."),
    _looks(0.3, _SUBWORDS, "is split into subwords", "Use the original text: models tokenize it themselves."),
    _looks(
        0.9,
        r"__label__|[a-z]+:[a-z]+\s",
        "starts every line with a label",
        "Write label and sentence to a .tsv, with a tab between them.",
    ),
    _looks(0.5, r"\s*\w+://\S+\s*$", "contains URLs"),
)


def kind_by_bytes(begin: bytes) -> str | None:
    """The format of a file that begins with these bytes; None: it may be text."""
    return next((kind for magic, kind in _MAGIC if begin.startswith(magic)), None)


def kind_by_name(suffix: str) -> str | None:
    """The format of a file with this suffix (without dot); None: it may have sentences."""
    return _SUFFIXES.get(suffix.lower())


# Guesses the encoding of bytes that are not UTF-8, from the text that they would give.


_SHOWN = 60  # maximum characters of a line in a message
_MOST = 4  # encodings named
_LEAST = 0.75  # minimum share of common characters
_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
# Python's name, iconv's, and the alphabet; for a two-byte encoding the codec and lead bytes of its common characters
_CANDIDATES = (
    ("gb18030", "GB18030", ("gb2312", 0xB0, 0xD7)),
    ("big5", "BIG5", ("big5", 0xA4, 0xC6)),
    ("cp932", "SHIFT_JIS", ("shift_jis", 0x82, 0x98)),
    ("euc_jp", "EUC-JP", ("shift_jis", 0x82, 0x98)),
    ("cp949", "CP949", ("euc_kr", 0xB0, 0xC8)),
    ("cp1251", "WINDOWS-1251", "CYRILLIC"),
    ("koi8_r", "KOI8-R", "CYRILLIC"),
    ("cp1252", "WINDOWS-1252", "LATIN"),
    ("cp1250", "WINDOWS-1250", "LATIN"),
    ("cp1253", "WINDOWS-1253", "GREEK"),
    ("cp1255", "WINDOWS-1255", "HEBREW"),
    ("cp1256", "WINDOWS-1256", "ARABIC"),
    ("cp874", "CP874", "THAI"),
)
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
    """Advice on how to convert a file with these bytes to UTF-8."""
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
    two_bytes = (each for _, _, each in _CANDIDATES if not isinstance(each, str))
    return ord(char) < 128 or char in _MARKS_OF_TEXT or any(_is_common(char, *each) for each in two_bytes)


def _line(text: str) -> str:
    """The first line with a character that is not ASCII, shortened around it."""
    lines = [" ".join(line.split()) for line in text.replace("\ufeff", "").splitlines()]
    line = next((line for line in lines if not line.isascii()), lines[0] if lines else "")
    place = max(next((at for at, char in enumerate(line) if ord(char) > 127), 0) - _SHOWN // 3, 0)
    shown = line[place : place + _SHOWN]
    return "".join(char for char in shown if char.isprintable())


def _likelihood(text: str, codec: str, common: tuple[str, int, int] | str) -> float:
    """Share of common characters among those beyond ASCII, assuming this encoding."""
    foreign = [char for char in text if ord(char) > 127]
    if not foreign:
        return 0.0
    if any(unicodedata.category(char) in ("Cc", "Co", "Cn") for char in foreign):
        return 0.0
    if not isinstance(common, str):
        return sum(_is_common(char, *common) for char in foreign) / len(foreign)
    if codec in ("cp1252", "cp1250"):
        usual = _WESTERN if codec == "cp1252" else _CENTRAL
        letters = sum(char.isalpha() for char in text)
        share = sum(char in usual or char in _MARKS_OF_TEXT for char in foreign) / len(foreign)
        return share * (sum(char.isalpha() for char in foreign) <= 0.35 * max(letters, 1))
    return _of_alphabet(text, foreign, common)


def _is_common(char: str, codec: str, first: int, last: int) -> bool:
    try:
        lead = char.encode(codec)[0]
    except UnicodeEncodeError:
        return False
    return first <= lead <= last or "\u3000" <= char <= "\u30ff" or "\uff00" <= char <= "\uffef"


def _of_alphabet(text: str, foreign: list[str], alphabet: str) -> float:
    """Share of letters of one alphabet, in words without other alphabets and with regular capitals."""
    kinds = Counter(unicodedata.name(char, "").startswith(alphabet) for char in foreign if char not in _MARKS_OF_TEXT)
    words = [word for word in text.split() if any(ord(char) > 127 for char in word)]
    odd = sum(
        (word != word.lower() and word != word.upper() and not word[1:].islower())
        or any(char.isascii() and char.isalpha() for char in word)
        for word in words
    )
    return kinds[True] / max(kinds.total(), 1) * (1 - odd / max(len(words), 1))
