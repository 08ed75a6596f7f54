"""The few pieces of HTML that objects show themselves with: readable too where styles are dropped, and no scripts."""

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
"""How Jupyter, Colab and VS Code mark the page that outputs stand in."""
_STYLE = Markup("").join(
    Markup("{}{{color-scheme:{}}}").format(Markup(",").join(Markup(f"{mark} .infoflow") for mark in marks), theme)
    for theme, marks in _THEMES.items()
)


def in_theme(*parts: str) -> Markup:
    """The parts, in which pictures and frames are light or dark as the notebook is; the computer may be otherwise.

    A picture's own rule of `prefers-color-scheme` is answered by the `color-scheme` of what it stands in. Where the
    style is dropped, or the page is marked in no known way, it is the reader's own choice.
    """
    inside = Markup("").join(parts)
    return Markup('<div class="infoflow"><style>{}</style>{}</div>').format(_STYLE, inside)


def shorter(text: object, most: int = 100) -> str:
    """The text on one line, at most so long.

    >>> shorter("a  long\\nstory", 7)
    'a long…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def paragraphs(*texts: str, strong: bool = False, small: bool = False) -> Markup:
    """Each text that is not empty, escaped, as a paragraph."""
    inner = "<b>{}</b>" if strong else "<small>{}</small>" if small else "{}"
    return Markup("").join(Markup(f"<p>{inner}</p>").format(text) for text in texts if text)


def grid(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """A table of escaped texts; notebooks have a style for tables of their own."""
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
    """The first rows of a frame, and how many there are in all."""
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
    """What is shown when its title is clicked."""
    return Markup("<details><summary>{}</summary>{}</details>").format(title, inside)
