"""Charts as files and as static pictures: sizes in inches, colours of paper, without a browser."""

import json
import re
from typing import Any

import vl_convert

from ._figure import Figure, Panel
from ._theme import FONT, on_paper

PIXELS_PER_INCH = 96
_NEEDLESS = r' (?:class|role|aria-[a-z]+|pointer-events|font-family|stroke-miterlimit)="[^"]*"| opacity="1"'
_GAP = 14  # pixels between panels


def static_svg(panel: Panel, width: int, prefix: str) -> str:
    """The panel as SVG of that width in pixels; colours stay CSS variables, so that it follows the page's theme.

    Ids inside start with `prefix`: many pictures share one page.
    """
    spec = {**panel.spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    svg = _responsive(_lean(_own_ids(vl_convert.vegalite_to_svg(spec), prefix)))
    # Coordinates come with 15 digits, which would be a third of the page.
    svg = re.sub(r"(\.\d\d)\d{4,}", r"\1", svg)
    return re.sub(r'(?<= d=")[^"]+|(?<="translate)[^"]+', _tenths, svg)


def _lean(svg: str) -> str:
    """Without what a still picture does not need: a quarter of its bytes. Its font is named once, at the top."""
    svg = re.sub(r'<path class="(?:fore|back)ground"[^>]* d=""[^>]*/>', "", svg)
    bare = re.sub(r"<[a-z][^>]*>", lambda tag: re.sub(_NEEDLESS, "", tag[0]), svg)
    return bare.replace("<svg", f'<svg font-family="{FONT}"', 1)


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
    svg = _own_ids(vl_convert.vegalite_to_svg(json.loads(on_paper(json.dumps(spec)))), "panel")
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
