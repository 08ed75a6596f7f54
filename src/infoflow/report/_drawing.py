"""Charts as files and as static pictures: sizes in inches, colours of paper, without a browser."""

import json
import re
from itertools import groupby
from typing import Any

from ._engine import svg_of
from ._figure import Figure, Panel
from ._theme import FONT, on_paper

PIXELS_PER_INCH = 96
_NEEDLESS = r' (?:class|role|aria-[a-z]+|pointer-events|font-family|stroke-miterlimit)="[^"]*"| opacity="1"'
_ELEMENT = re.compile(r"<(path|line|text)((?: [a-z0-9-]+=\"[^\"]*\")*)(/>|>[^<]*</\1>)")
_INHERITED = re.compile(r' (?:fill|stroke|stroke-width|stroke-dasharray|font-size|font-weight|text-anchor)="[^"]*"')
_GAP = 14  # pixels between panels


def static_svg(panel: Panel, width: int, prefix: str) -> str:
    """The panel as SVG of that width in pixels; colours stay CSS variables, so that it follows the page's theme.

    Ids inside start with `prefix`: many pictures share one page.
    """
    spec = {**panel.spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    svg = _responsive(_lean(_own_ids(svg_of(spec), prefix)))
    # Coordinates come with 15 digits, which would be a third of the page.
    svg = re.sub(r'(\.\d\d)\d{4,}|(?<= opacity="0)(\.\d\d)\d+', r"\1\2", svg)
    return re.sub(r'(?<= d=")[^"]+|(?<="translate)[^"]+', _tenths, svg)


def _lean(svg: str) -> str:
    """Without what a still picture does not need: a third of its bytes. Its font is named once, at the top."""
    svg = re.sub(r'<path class="(?:fore|back)ground"[^>]* d=""[^>]*/>', "", svg)
    bare = re.sub(r"<[a-z][^>]*>", lambda tag: re.sub(_NEEDLESS, "", tag[0]), svg)
    # Neither filled nor drawn, unless it is what something else is clipped to.
    bare = re.sub(r'(<clipPath[^>]*>)?<path d="[^"]*"/>', lambda path: path[0] if path[1] else "", bare)
    return _grouped(bare).replace("<svg", f'<svg font-family="{FONT}"', 1)


def _grouped(svg: str) -> str:
    """Marks that follow each other and look alike share a group that says how they look."""
    parts, end = [], 0
    for look, run in groupby(_ELEMENT.finditer(svg), key=_Run()):
        marks = list(run)
        parts.append(svg[end : marks[0].start()])
        end = marks[-1].end()
        shared = "".join(look[1])
        bare = "".join(_INHERITED.sub("", mark[0].split(">", 1)[0]) + ">" + mark[0].split(">", 1)[1] for mark in marks)
        parts.append(f"<g{shared}>{bare}</g>" if shared and len(marks) > 1 else svg[marks[0].start() : end])
    return "".join(parts) + svg[end:]


class _Run:
    """Key of a mark: the same for one that directly follows another with the same look."""

    def __init__(self) -> None:
        self._number, self._end, self._look = 0, -1, tuple[str, ...]()

    def __call__(self, mark: re.Match[str]) -> tuple[int, tuple[str, ...]]:
        look = tuple(sorted(_INHERITED.findall(mark[2])))
        if mark.start() != self._end or look != self._look:
            self._number += 1
        self._end, self._look = mark.end(), look
        return self._number, look


def _tenths(path: re.Match[str]) -> str:
    """The coordinates of a path, or of where a mark is moved to, to a tenth of a pixel."""
    return re.sub(r"(\.\d)\d+", r"\1", path[0])


def paper_svg(figure: Figure, width_inches: float) -> str:
    """All panels of a figure as one SVG, exactly that wide, in light colours; side by side where there is room."""
    columns = _columns(len(figure.panels), width_inches)
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
    """A panel's SVG on paper and its height in pixels."""
    spec = {**panel.spec, "width": round(width), "autosize": {"type": "fit-x", "contains": "padding"}}
    if panel.title:
        spec["title"] = {"text": panel.title, "offset": 12}
    svg = _own_ids(svg_of(json.loads(on_paper(json.dumps(spec)))), "panel")
    return svg, float(_attribute(svg, "height"))


def _own_ids(svg: str, prefix: str) -> str:
    """The converter numbers gradients and clips through a whole process; here they count from 0 in each picture."""
    for index, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', svg))):
        svg = re.sub(rf'(?<= id="){re.escape(name)}(?=")|(?<=url\(#){re.escape(name)}(?=\))', f"{prefix}-{index}", svg)
    return svg


def _responsive(svg: str) -> str:
    """Without a fixed size: the picture is as wide as its place, and keeps its proportions by its viewBox."""
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} preserveAspectRatio="xMinYMin meet" aria-hidden="true">{body}'


def _attribute(svg: str, name: str) -> str:
    match: Any = re.search(rf'<svg[^>]* {name}="([\d.]+)"', svg)
    return match[1]
