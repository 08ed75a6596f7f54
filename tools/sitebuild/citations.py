"""Markdown extension: `[@key]` becomes a link to the references page. An unknown key fails the build."""

import re
from pathlib import Path
from typing import final
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

from .bibliography import Entry, read

PATTERN = r"\[@([a-z0-9]+)\]"


class CitationError(ValueError):
    """A citation of what is not in references.bib; it fails the build."""


def anchor(key: str) -> str:
    """The identifier of an entry on the references page."""
    return f"ref-{key}"


def keys_in(text: str) -> list[str]:
    """The keys that a text cites, each once, in order."""
    return list(dict.fromkeys(re.findall(PATTERN, text)))


@final
class _Citations(InlineProcessor):
    """The link is an `autoref`: it is resolved to the page that has the heading, from wherever it stands."""

    def __init__(self, entries: dict[str, Entry], md: Markdown) -> None:
        super().__init__(PATTERN, md)
        self._entries = entries

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:
        if m[1] not in self._entries:
            raise CitationError(f"[@{m[1]}] is not in references.bib. Add the entry, or mend the key.")
        link = Element("autoref", {"identifier": anchor(m[1])})
        link.text = self._entries[m[1]].short
        return link, m.start(0), m.end(0)


@final
class CitationExtension(Extension):
    def __init__(self, **options: object) -> None:
        self.config = {"bibliography": ["references.bib", "path of the BibTeX file"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        entries = read(Path(self.getConfig("bibliography")))
        md.inlinePatterns.register(_Citations(entries, md), "citations", 175)  # after code, before links


def makeExtension(**options: object) -> CitationExtension:
    return CitationExtension(**options)
