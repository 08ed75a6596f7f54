"""The few HTML elements that objects display themselves with: readable without styles, and free of scripts."""

from collections.abc import Iterable, Sequence

import pandas as pd
from markupsafe import Markup

from infoflow.corpus import printable

_THEMES = {
    "light": ("[data-jp-theme-light=true]", "html[theme=light]", "[data-vscode-theme-kind$=light]"),
    "dark": (
        "[data-jp-theme-light=false]",
        "html[theme=dark]",
        "[data-vscode-theme-kind=vscode-dark]",
        "[data-vscode-theme-kind=vscode-high-contrast]",
    ),
}
"""How Jupyter, Colab and VS Code mark the page that contains the outputs."""
_STYLE = Markup("").join(
    Markup("{}{{color-scheme:{}}}").format(Markup(",").join(Markup(f"{mark} .infoflow") for mark in marks), theme)
    for theme, marks in _THEMES.items()
)


def in_theme(*parts: str) -> Markup:
    """Wrap the parts so that pictures and frames follow the notebook's light or dark theme, not the computer's.

    A picture's own `prefers-color-scheme` rule follows the `color-scheme` of its container. If the style is dropped or
    the page is marked in no known way, the reader's own setting applies.
    """
    inside = Markup("").join(parts)
    return Markup('<div class="infoflow"><style>{}</style>{}</div>').format(_STYLE, inside)


def shorter(text: object, most: int = 100) -> str:
    """The text on one line, at most `most` characters long.

    >>> shorter("a  long\\nstory", 7)
    'a long…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def paragraphs(*texts: str, strong: bool = False, small: bool = False) -> Markup:
    """Each non-empty text as an escaped paragraph."""
    inner = "<b>{}</b>" if strong else "<small>{}</small>" if small else "{}"
    return Markup("").join(Markup(f"<p>{inner}</p>").format(text) for text in texts if text)


def grid(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """A table of escaped texts; notebooks style tables themselves."""
    head = Markup("").join(Markup('<th style="text-align:left">{}</th>').format(name) for name in header)
    body = Markup("").join(Markup("<tr>{}</tr>").format(Markup("").join(map(_cell, row))) for row in rows)
    title = Markup("<caption>{}</caption>").format(caption) if caption else ""
    return Markup(
        '<div style="overflow-x:auto"><table>{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(title, head, body)


def _cell(value: object) -> Markup:
    if isinstance(value, Markup):
        return Markup('<td style="text-align:left">{}</td>').format(value)
    return Markup('<td style="text-align:left" dir="auto">{}</td>').format(printable(str(value)))


def table_html(frame: pd.DataFrame, length: int) -> Markup:
    """The first rows of a frame, and the total number of rows."""
    header = [str(name) for name in frame if name != "replicates"]
    rows = [[_number(value) for value in row] for row in frame[header].itertuples(index=False)]
    more = paragraphs(f"{length:,} rows in all.", small=True) if length > len(frame) else Markup("")
    lines = [
        [Markup('<span style="white-space:nowrap">{}</span>').format(printable(cell)) for cell in row] for row in rows
    ]
    return grid(header, lines) + more


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shorter(value, 80)


def summary(title: str, facts: Iterable[str]) -> Markup:
    """A heading and a line of facts."""
    return Markup("<p><b>{}</b><br>{}</p>").format(title, Markup(" · ").join(facts))


def folded(title: str, inside: Markup) -> Markup:
    """Content that a click on its title reveals."""
    return Markup("<details><summary>{}</summary>{}</details>").format(title, inside)
