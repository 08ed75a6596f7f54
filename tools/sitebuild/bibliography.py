"""references.bib as entries: who, when, what, where."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

_ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308", "u": "\u0306", "^": "\u0302", "~": "\u0303", "c": "\u0327"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One source."""

    key: str
    authors: tuple[str, ...]  # as "Given Family"
    title: str
    venue: str
    year: str
    eprint: str  # number on arXiv, or nothing

    @property
    def short(self) -> str:
        """How a text cites it: "Voita et al. 2019"."""
        families = [name.split()[-1] if not name.isupper() else name for name in self.authors]
        who = families[0] if len(families) == 1 else " and ".join(families[:2])
        return f"{families[0]} et al. {self.year}" if len(families) > 2 else f"{who} {self.year}"

    @property
    def full(self) -> str:
        """Authors, title, place and year in one line of Markdown; no network address but arXiv's name."""
        names = ", ".join(self.authors)
        place = ", ".join(
            part for part in (self.venue, f"arXiv:{self.eprint}" if self.eprint else "", self.year) if part
        )
        return f"{names}. *{self.title}*. {place}."


def read(path: Path) -> dict[str, Entry]:
    """The entries by key, in the order of the file.

    Raises:
        ValueError: An entry has no author, title or year.
    """
    entries = {}
    for block in re.split(r"^(?=@)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if head := re.match(r"@\w+\{([a-z0-9]+),", block):
            entries[head[1]] = _entry(head[1], _fields(block))
    return entries


def _fields(block: str) -> dict[str, str]:
    """Field by name; values in braces, or bare, that end with the line."""
    return dict(re.findall(r"^\s+(\w+)\s*=\s*\{?(.*?)\}?,?$", block, flags=re.MULTILINE))


def _entry(key: str, fields: dict[str, str]) -> Entry:
    if missing := [name for name in ("author", "title", "year") if not fields.get(name)]:
        raise ValueError(f"references.bib: {key} has no {missing[0]}.")
    authors = [_plain(name) for name in re.split(r"\s+and\s+", fields["author"])]
    venues = (fields.get(name, "") for name in ("journal", "booktitle", "publisher", "howpublished"))
    return Entry(
        key=key,
        authors=tuple(" ".join(reversed([part.strip() for part in name.split(",", 1)])) for name in authors),
        title=_plain(fields["title"]),
        venue=_plain(next((venue for venue in venues if venue), "")),
        year=fields["year"],
        eprint=fields.get("eprint", ""),
    )


def _plain(text: str) -> str:
    """LaTeX's accents and braces as plain characters."""
    text = re.sub(r"\{?\\(['`\"^~uc])\s*\{?\\?([A-Za-z])\}?\}?", _accented, text)
    return re.sub(r"[{}]", "", re.sub(r"\\([&#$%_])", r"\1", text)).replace("--", "–").strip()


def _accented(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", match[2] + _ACCENTS[match[1]])
