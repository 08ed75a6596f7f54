"""Text of schemas and claims as Markdown that shows it as it is."""

import re


def escaped(text: str) -> str:
    """The text with what Markdown would take for markup escaped, and citations left."""
    return re.sub(r"(?<!`)([\\*_$<>|#~^{}])", r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")


def cell(text: str) -> str:
    """The text in a cell of a table: on one line."""
    return escaped(re.sub(r"\s+", " ", text))
