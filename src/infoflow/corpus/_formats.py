"""Formats of other programs, recognised by a file's first bytes, its name, its first line, or its lines."""

import re
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

# Suffixes that are also codes of large languages (cs, pl, ts, ml) are left out: aligned files are named by language.
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
    """The format of a file in which more than a share of the lines match a pattern; None tests the first line only."""

    pattern: re.Pattern[str]
    share: float | None
    what: str  # behind "it"
    advice: str = TAKE_IT_OUT


def _looks(share: float | None, pattern: str, what: str, advice: str = TAKE_IT_OUT) -> LinePattern:
    return LinePattern(pattern=re.compile(pattern, re.IGNORECASE), share=share, what=what, advice=advice)


_DATE = r"(?:\d{4}-\d\d-\d\d|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\d{1,2}/[a-z]{3}/\d{4}|[a-z]{3} +\d{1,2})"
_CODE = (
    r"(?:import|from \S+ import|def|class|return|elif|func|function|const|let|var|public|private|package|using) "
    r".*[^.!?]$|#include|(?:if|for|while|else|try|except)\b.*:$|.*(?:[{}]|\b[a-z_]\w*\([^()]*\);)\s*$"
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
    _looks(0.4, _CODE, "is source code"),
    _looks(
        0.1,
        r'(?:msgid|msgstr|msgctxt)\b.*"$',
        "is a gettext message catalogue",
        "Write the messages into a .tsv of two columns.",
    ),
    _looks(0.8, r'\s*(?:[#;!]|/\*|\[[^\]]+\]$|"?[\w.-]+"?\s*=\s*\S)', "has a name and a value on every line"),
    _looks(0.9, r"\s*(?:[#-] ?)?[\w.-]+:(?:\s|$)", "has a name and a colon at the start of every line"),
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
        r"__label__",
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
