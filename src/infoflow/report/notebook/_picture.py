"""Pictures and the few HTML elements in which objects display themselves, free of scripts."""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import pandas as pd
from markupsafe import Markup

from infoflow.corpus import printable

from .._drawing import static_svg
from .._figure import Panel
from .._theme import DARK, LIGHT, coloured

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

    A picture's own `prefers-color-scheme` rule follows the `color-scheme` of its container. If the style is dropped, or
    the page marks its theme in an unknown way, the reader's own setting applies.
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
    rows = [
        [f"{value:.4g}" if isinstance(value, float) else shorter(value, 80) for value in row]
        for row in frame[header].itertuples(index=False)
    ]
    more = paragraphs(f"{length:,} rows in all.", small=True) if length > len(frame) else Markup("")
    lines = [
        [Markup('<span style="white-space:nowrap">{}</span>').format(printable(cell)) for cell in row] for row in rows
    ]
    return grid(header, lines) + more


def summary(title: str, facts: Iterable[str]) -> Markup:
    """A heading and a line of facts."""
    return Markup("<p><b>{}</b><br>{}</p>").format(title, Markup(" · ").join(facts))


def folded(title: str, inside: Markup) -> Markup:
    """Content that a click on its title reveals."""
    return Markup("<details><summary>{}</summary>{}</details>").format(title, inside)


ONE_PANEL, SMALL_PANEL = 620, 330
"""Pixels of a single picture, and of one in a row."""
_WIDE_LETTER = 0.62  # share of the font size: mean letter width in the widest common fonts (DejaVu Sans, Verdana)
_MARGIN = 6
_SVG = "{http://www.w3.org/2000/svg}"
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


def picture(panel: Panel, width: int, text: str) -> Markup:
    """The panel as an `<img>` of this width in pixels, or narrower on a narrow page; `text` is its alternative text.

    It needs no scripts, so it is also visible in untrusted and in exported notebooks.
    """
    svg = image_svg(panel, width)
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    shown = ElementTree.fromstring(svg).attrib["width"]
    return Markup('<img src="{}" width="{}" alt="{}" style="max-width:100%;height:auto;vertical-align:top">').format(
        address, shown, text
    )


def image_svg(panel: Panel, width: int) -> str:
    """The titled panel as a standalone SVG with its own size, colours and background.

    With `width` 0, the chart determines the width. The SVG follows the reader's light or dark setting. It uses the
    viewer's fonts, so it leaves room for labels wider than drawn.
    """
    title = {"title": {"text": panel.title, "offset": 12}} if panel.title else {}
    spec = {**panel.spec, **title}
    root = _in_both_colours(spec, width) if _mixes_colours(spec) else _drawn(spec, width)
    left, right = _reach(root)
    x, y, drawn_width, height = map(float, root.attrib["viewBox"].split())
    left = min(x, left) - _MARGIN
    drawn = max(x + drawn_width, right) + _MARGIN - left
    root.set("viewBox", f"{left:.1f} {y - _MARGIN:.1f} {drawn:.1f} {height + 2 * _MARGIN:.1f}")
    root.set("width", f"{drawn:.0f}")
    root.set("height", f"{height + 2 * _MARGIN:.0f}")
    text = ElementTree.tostring(root, encoding="unicode")
    paper = f'<rect x="{left:.1f}" y="{y - _MARGIN:.1f}" width="100%" height="100%" fill="var(--paper)"/>'
    return text.replace(">", f"><style>{_colours(text)}</style>{paper}", 1)


def _drawn(spec: dict[str, Any], width: int, prefix: str = "p") -> ElementTree.Element:
    return ElementTree.fromstring(static_svg(Panel(spec=spec), width, prefix))


def _mixes_colours(part: Any) -> bool:
    """Whether a scale interpolates colours, which the drawing engine cannot do with variables."""
    if isinstance(part, list):
        return any(map(_mixes_colours, part))
    if not isinstance(part, dict):
        return False
    own = part.get("type") == "quantitative" and "var(--" in json.dumps(part.get("scale") or {})
    return own or any(map(_mixes_colours, part.values()))


def _in_both_colours(spec: dict[str, Any], width: int) -> ElementTree.Element:
    """The chart drawn in light and in dark colours; a style shows one of the two."""
    root = None
    for name, palette in (("light", LIGHT), ("dark", DARK)):
        drawn = _drawn(json.loads(coloured(json.dumps(spec), palette)), width, name)
        group = ElementTree.Element(f"{_SVG}g", {"class": name})
        group.extend(list(drawn))
        root = drawn if root is None else root
        for child in list(root):
            if child.get("class") is None:
                root.remove(child)
        root.append(group)
    assert root is not None
    return root


def _colours(svg: str) -> str:
    """The light and dark colours that this picture uses; none for a chart with fixed colours, which stays on white."""
    used = sorted({"paper", *_VARIABLE.findall(svg)} & set(LIGHT))
    twice = 'class="dark"' in svg
    if used == ["paper"] and not twice:
        return f":root{{--paper:{LIGHT['paper']};}}"
    light, dark = ("".join(f"--{name}:{palette[name]};" for name in used) for palette in (LIGHT, DARK))
    hidden, shown = (".dark{display:none}", ".light{display:none}.dark{display:inline}") if twice else ("", "")
    return f":root{{{light}}}{hidden}@media (prefers-color-scheme:dark){{:root{{{dark}}}{shown}}}"


def lighter_png(content: bytes) -> bytes:
    """The same PNG, compressed better: half the size, for pictures stored in a notebook."""
    chunks, place = [], 8
    while place < len(content):
        size = int.from_bytes(content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    packed = zlib.compress(zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT")), 9)
    kept = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    kept.insert(-1, (b"IDAT", packed))
    return content[:8] + b"".join(
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4) for kind, data in kept
    )


def _reach(root: ElementTree.Element) -> tuple[float, float]:
    """How far texts extend to the left and right in the widest common font."""
    spans = [_span(element, x, size, anchor) for element, x, size, anchor in _texts(root, 0.0, 11.0, "start")]
    return min((low for low, _ in spans), default=0.0), max((high for _, high in spans), default=0.0)


def _span(text: ElementTree.Element, x: float, size: float, anchor: str) -> tuple[float, float]:
    lines = [line for line in text.itertext() if line.strip()]
    wide = max((len(line) for line in lines), default=0) * size * _WIDE_LETTER
    before = {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return x - before, x - before + wide


def _texts(
    element: ElementTree.Element, x: float, size: float, anchor: str
) -> Iterator[tuple[ElementTree.Element, float, float, str]]:
    """Every horizontal text with its inherited x position, size and anchor."""
    transform = element.get("transform", "")
    if "rotate" in transform:  # vertical text extends up and down
        return
    if moved := re.search(r"translate\((-?[\d.]+)", transform):
        x += float(moved[1])
    size = float(element.get("font-size", f"{size}").removesuffix("px"))
    anchor = element.get("text-anchor", anchor)
    if element.tag == f"{_SVG}text" and element.get("opacity") != "0":
        yield element, x + float(element.get("x", "0")), size, anchor
    for child in element:
        yield from _texts(child, x, size, anchor)
