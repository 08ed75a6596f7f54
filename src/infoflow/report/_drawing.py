"""Charts as files and static pictures: sizes in inches, print colours, no browser."""

import json
import re
import textwrap
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from ._engine import svg_of
from ._figure import Panel, ReportFigure
from ._path_data import simplified
from ._theme import FONT, on_paper

PIXELS_PER_INCH = 96
_SVG = "{http://www.w3.org/2000/svg}"
_NEEDLESS = ("class", "role", "pointer-events", "font-family", "stroke-miterlimit")  # or begins with "aria-"
_INHERITED = ("fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "text-anchor")
_MARKS = tuple(f"{_SVG}{name}" for name in ("path", "line", "text"))
_GAP = 14  # pixels between panels
_LETTER = 7.5  # pixels per letter of a title, on average

ElementTree.register_namespace("", _SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def static_svg(panel: Panel, width: int, prefix: str) -> str:
    """The panel as SVG of that width in pixels; colours stay CSS variables, so that it follows the page's theme.

    Its viewBox keeps the proportions, and it takes a third of the bytes. Ids inside start with `prefix`, since many
    pictures share one page.
    """
    root = _drawn(panel.spec, width, prefix)
    for element in root.iter():
        _lighten(element)
    for element in list(root.iter()):
        _drop_unseen(element)
        _group_alike(element)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"preserveAspectRatio": "xMinYMin meet", "aria-hidden": "true", "font-family": FONT}
    return ElementTree.tostring(root, encoding="unicode")


def _drawn(spec: dict[str, Any], width: int, prefix: str) -> ElementTree.Element:
    """The converter's picture, with the chart's own width if `width` is 0.

    The converter numbers gradients and clips across a whole process; here they count from 0.
    """
    fitted = {**spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}} if width else spec
    root = ElementTree.fromstring(svg_of(fitted))
    names = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    own = {name: f"{prefix}-{index}" for index, name in enumerate(dict.fromkeys(names))}
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, own[value])
            elif value.startswith("url(#"):
                element.set(key, f"url(#{own.get(value[5:-1], value[5:-1])})")
    return root


def _lighten(element: ElementTree.Element) -> None:
    """Remove everything a static picture does not need, and round coordinates from 15 digits to one decimal."""
    for key, value in list(element.attrib.items()):
        if key in _NEEDLESS or key.startswith("aria-") or (key, value) == ("opacity", "1"):
            del element.attrib[key]
        elif key == "d":
            element.set(key, simplified(_NUMBER.sub(lambda number: _rounded(number, 1), value)))
        elif key == "transform":
            element.set(key, _NUMBER.sub(lambda number: _rounded(number, 1), value))
        else:
            element.set(key, _LONG.sub(lambda number: _rounded(number, 2), value))


_NUMBER, _LONG = re.compile(r"-?\d+\.\d+"), re.compile(r"-?\d+\.\d{4,}")


def _rounded(number: re.Match[str], places: int) -> str:
    return f"{float(number[0]):.{places}f}".rstrip("0").rstrip(".")


def _drop_unseen(parent: ElementTree.Element) -> None:
    """Remove invisible marks.

    These are paths that are neither filled nor stroked, unless something is clipped to them, and marks for a pointer or
    another moment.
    """
    if parent.tag != f"{_SVG}clipPath":
        for child in list(parent):
            bare = child.tag == f"{_SVG}path" and (not child.get("d") or set(child.attrib) == {"d"})
            if bare or (child.tag in _MARKS and child.get("opacity") == "0"):
                parent.remove(child)


def _group_alike(parent: ElementTree.Element) -> None:
    """Group consecutive marks that look alike, and state their style once."""
    runs = [list(run) for _, run in groupby(list(parent), key=_look)]
    for run in runs:
        if (look := _look(run[0])) and len(run) > 1:
            group = ElementTree.Element(f"{_SVG}g", dict(look))
            parent.insert(list(parent).index(run[0]), group)
            for mark in run:
                parent.remove(mark)
                group.append(mark)
                for key, _ in look:
                    del mark.attrib[key]


def _look(element: ElementTree.Element) -> tuple[tuple[str, str], ...]:
    """The mark's own inherited attributes; () for other elements."""
    if element.tag not in _MARKS or len(element):
        return ()
    return tuple((key, element.attrib[key]) for key in _INHERITED if key in element.attrib)


def paper_svg(figure: ReportFigure, width_inches: float, columns: int | None = None) -> str:
    """All panels of a figure as one SVG of exactly that width, in light colours.

    `columns` panels stand side by side, or fewer if the figure has fewer; by default as many as fit.
    """
    columns = _columns(len(figure.panels), width_inches) if columns is None else min(columns, len(figure.panels))
    width = width_inches * PIXELS_PER_INCH
    cell = (width - _GAP * (columns - 1)) / columns
    pictures = [_paper_panel(panel, cell) for panel in figure.panels]
    parts, top = [], 0.0
    for start in range(0, len(pictures), columns):
        row = pictures[start : start + columns]
        for column, (svg, _) in enumerate(row):
            parts.append(f'<g transform="translate({column * (cell + _GAP):.2f},{top:.2f})">{svg}</g>')
        top += max(height for _, height in row) + _GAP
    height = max(top - _GAP, 1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_inches}in" height="{height / PIXELS_PER_INCH:.3f}in" '
        f'viewBox="0 0 {width:.2f} {height:.2f}" font-family="{FONT}">{"".join(parts)}</svg>'
    )


def _columns(panels: int, width_inches: float) -> int:
    """One panel in a column of 3.3 inches; two or three side by side on a page of 6.8."""
    if width_inches < 4.5:
        return 1
    return 3 if panels >= 3 and panels != 4 else min(panels, 2)


def _paper_panel(panel: Panel, width: float) -> tuple[str, float]:
    """A panel's SVG for print, and its height in pixels; titles wider than the panel are wrapped."""
    lines = textwrap.wrap(panel.title, int(width / _LETTER))
    title = {"title": {"text": lines, "offset": 12}} if lines else {}
    picture = _drawn(json.loads(on_paper(json.dumps({**panel.spec, **title}))), round(width), "panel")
    return ElementTree.tostring(picture, encoding="unicode"), float(picture.attrib["height"])
