"""Text of schemas and claims as Markdown that shows it as it is."""

import re


def escaped(text: str) -> str:
    """The text with what Markdown would take for markup escaped; citations, and code between backticks, are left."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"(?<!`)([\\*_$<>|#~^{}])", r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")


def cell(text: str) -> str:
    """The text in a cell of a table: on one line."""
    return escaped(re.sub(r"\s+", " ", text))
