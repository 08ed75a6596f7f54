"""Makes corpus text safe to show on a terminal."""

import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # part of the spelling of several scripts


def printable(text: str) -> str:
    """The text without control characters, ESC of escape sequences, direction marks and line breaks.

    A corpus is untrusted: an escape sequence could rewrite the terminal, a direction mark reorder the line.
    """
    spaced = "".join(" " if char.isspace() else char for char in text)
    return "".join(char for char in spaced if char in _JOINERS or unicodedata.category(char) not in _HIDDEN)


def shortened(text: str) -> str:
    """The text; a long one is cut to its beginning and end, for messages."""
    return text if len(text) <= 200 else f"{text[:100]}…{text[-50:]} ({len(text):,} characters)"
