"""Charts as files and as static pictures: sizes in inches, colours of paper, without a browser."""

import copy
import json
import re
from typing import Any

import vl_convert

from ._figure import Figure, Panel
from ._theme import FONT, on_paper

PIXELS_PER_INCH = 96
_COLUMN_GAP = 28


def static_svg(panel: Panel, width: int) -> str:
    """The panel as SVG of that width in pixels; colours stay CSS variables, so that it follows the page's theme."""
    spec = {**panel.spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    return _responsive(vl_convert.vegalite_to_svg(spec))


def paper_svg(figure: Figure, width_inches: float) -> str:
    """All panels of a figure as one SVG, exactly that wide, in light colours; side by side where there is room."""
    pictures = [_paper_panel(panel, width) for panel, width in _placed(figure.panels, width_inches)]
    columns = _columns(len(figure.panels), width_inches)
    gap = _COLUMN_GAP / 2
    cell = (width_inches * PIXELS_PER_INCH - gap * (columns - 1)) / columns
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    parts, top = [], 0.0
    for row in rows:
        for column, (svg, height) in enumerate(row):
            parts.append(f'<g transform="translate({column * (cell + gap):.2f},{top:.2f})">{svg}</g>')
        top += max(height for _, height in row) + gap
    width = width_inches * PIXELS_PER_INCH
    height = max(top - gap, 1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_inches}in" height="{height / PIXELS_PER_INCH:.3f}in" '
        f'viewBox="0 0 {width:.2f} {height:.2f}" font-family="{FONT}">{"".join(parts)}</svg>'
    )


def _placed(panels: list[Panel], width_inches: float) -> list[tuple[Panel, float]]:
    columns = _columns(len(panels), width_inches)
    cell = (width_inches * PIXELS_PER_INCH - _COLUMN_GAP / 2 * (columns - 1)) / columns
    return [(panel, cell) for panel in panels]


def _columns(panels: int, width_inches: float) -> int:
    """A column of 3.3 inches holds one panel; a page of 6.8 inches two, or three small ones."""
    return max(1, min(panels, 3 if panels % 3 == 0 and panels > 2 else 2)) if width_inches > 4.5 else 1


def _paper_panel(panel: Panel, width: float) -> tuple[str, float]:
    """A panel's SVG on paper and its height in pixels."""
    spec = copy.deepcopy(panel.spec)
    spec |= {"width": round(width), "autosize": {"type": "fit-x", "contains": "padding"}}
    if panel.title:
        spec["title"] = {"text": panel.title, "offset": 14}
    spec["params"] = [param for param in spec.get("params", []) if param.get("name") == "highlight"]
    svg = vl_convert.vegalite_to_svg(json.loads(on_paper(json.dumps(spec))))
    return svg, float(_attribute(svg, "height"))


def _responsive(svg: str) -> str:
    """Without a fixed size: the picture is as wide as its place, and keeps its proportions by its viewBox."""
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} preserveAspectRatio="xMinYMin meet" aria-hidden="true">{body}'


def _attribute(svg: str, name: str) -> str:
    match: Any = re.search(rf'<svg[^>]* {name}="([\d.]+)"', svg)
    return match[1]
