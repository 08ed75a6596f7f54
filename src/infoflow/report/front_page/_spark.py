"""A small SVG of lines over layers, drawn without Vega so that the front page shows it at once in any browser."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup, escape

from .._in_words import two_digits
from .._theme import Series

_WIDTH, _HEIGHT = 320, 146
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 88, 22, 24  # the left margin fits −0.0089
_ROW = 13  # pixels between labels
_NAMED = 6  # up to this number, lines are labelled at their ends
_SHORT = 12  # characters of a name
_GREY = "var(--control)"
_UNTRAINED, _CONTROL = "untrained", (4, 3)  # its name and its dash


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the picture."""

    points: list[tuple[float, float]]  # in data units
    band: list[tuple[float, float, float]]  # x, low, high
    color: str
    dash: tuple[int, ...]
    name: str = ""


def spark(
    table: pd.DataFrame,
    series: Iterable[Series],
    dull: set[str],
    axes: tuple[str, str],
    percent: bool,
    name: str,
    places: tuple[str, str] | None = None,
    bounded: bool = False,
) -> Markup:
    """Draw the lines of a table of `curves` as one SVG; untrained models and lines in `dull` are grey.

    `axes`: title of the x axis, unit of the y axis; `places`: names of the first and last positions; `bounded`: values
    lie between 0 and 1, as percentages do. Bands much wider than the span of the lines are cut.
    """
    lines = list(_lines(table, list(series), dull))
    xs = [at for line in lines for at, _ in line.points]
    ys = [at for line in lines for _, at in line.points]
    room = (max(ys) - min(ys)) or abs(max(ys)) or 1.0
    ends = [end for line in lines for _, low, high in line.band for end in (low, high)]
    low, high = max(min(ys + ends), min(ys) - room / 2), min(max(ys + ends), max(ys) + room / 2)
    if (percent or bounded) and 0 <= min(ys) <= max(ys) <= 1:  # an interval over few seeds may exceed the bounds
        low, high = max(low, 0.0), min(high, 1.0)
    frame = _Frame(min(xs), max(xs), low, high)
    parts = [_axes(frame, axes, percent, places)]
    parts += [_band(line, frame) for line in lines]
    parts += [_path(line, frame) for line in lines]
    named = _named(lines, frame)
    if len([line for line in named if line.name != _UNTRAINED]) <= _NAMED:
        parts += [_label(line.name, line.color, y) for line, y in _apart(named, frame)]
    body = Markup("").join(parts)
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, name, body
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    left: float
    right: float
    low: float
    high: float

    def x(self, at: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - self.left) / ((self.right - self.left) or 1), 1)

    def y(self, at: float) -> float:
        part = (min(max(at, self.low), self.high) - self.low) / ((self.high - self.low) or 1)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * part, 1)


def _named(lines: list[Line], frame: _Frame) -> list[Line]:
    """The lines that get a label; untrained models that end at the same height share one."""
    named: list[Line] = []
    for line in lines:
        near = [
            other
            for other in named
            if other.name == line.name == _UNTRAINED
            and abs(frame.y(other.points[-1][1]) - frame.y(line.points[-1][1])) < _ROW
        ]
        if not near:
            named.append(line)
    return named


def _lines(table: pd.DataFrame, series: list[Series], dull: set[str]) -> Iterable[Line]:
    for one in series:
        for group in ("untrained", "trained"):
            rows = table[(table["series"] == one.key) & (table["group"] == group)].sort_values(by="layer")
            if rows.empty:
                continue
            grey = group == "untrained" or one.key in dull
            known = rows.dropna(subset=["low", "high"]) if group == "trained" else rows.head(0)
            yield Line(
                points=list(zip(rows["layer"], rows["value"], strict=True)),
                band=list(zip(known["layer"], known["low"], known["high"], strict=True)),
                color=_GREY if grey else one.color,
                dash=_CONTROL if group == "untrained" else one.dash,
                name=one.label if group == "trained" else _UNTRAINED,
            )


def _axes(frame: _Frame, axes: tuple[str, str], percent: bool, places: tuple[str, str] | None) -> Markup:
    def stated(value: float) -> str:
        return f"{round(100 * value)} %" if percent else two_digits(value)

    x, unit = axes

    base = _HEIGHT - _BOTTOM
    text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    rule = Markup('<line x1="{}" x2="{}" y1="{}" y2="{}" class="axis"/>').format(_LEFT, _WIDTH - _RIGHT, base, base)
    across = (frame.left, frame.right)
    end_texts = places or tuple(f"{at:g}" for at in across)
    ends = [text.format(frame.x(at), base + 15, "middle", end) for at, end in zip(across, end_texts, strict=True)]
    middle = text.format((_LEFT + _WIDTH - _RIGHT) / 2, base + 15, "middle", x)
    values = [text.format(_LEFT - 5, frame.y(at) + 4, "end", stated(at)) for at in (frame.low, frame.high)]
    up = text.format(2, 10, "start", unit)
    return Markup("").join([rule, *ends, middle, *values, up])


def _band(line: Line, frame: _Frame) -> Markup:
    if not line.band:
        return Markup("")
    up = [f"{frame.x(x)} {frame.y(high)}" for x, _, high in line.band]
    down = [f"{frame.x(x)} {frame.y(low)}" for x, low, _ in reversed(line.band)]
    return Markup('<path d="M{}Z" fill="{}" fill-opacity=".15"/>').format("L".join(up + down), line.color)


def _path(line: Line, frame: _Frame) -> Markup:
    d = "M" + "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in line.points)
    dash = Markup(' stroke-dasharray="{}"').format(" ".join(map(str, line.dash))) if line.dash[1] else Markup("")
    return Markup('<path d="{}" fill="none" stroke="{}" stroke-width="{}"{}/>').format(
        d, line.color, 1.3 if line.dash == _CONTROL else 2, dash
    )


def _apart(lines: list[Line], frame: _Frame) -> list[tuple[Line, float]]:
    """Each line with the height of its label: at the line's end, moved until labels do not overlap."""
    wanted = sorted(lines, key=lambda line: frame.y(line.points[-1][1]))
    heights: list[float] = []
    for line in wanted:
        heights.append(max(frame.y(line.points[-1][1]) + 4, heights[-1] + _ROW if heights else 0))
    over = max(0.0, heights[-1] - (_HEIGHT - _BOTTOM + 4)) if heights else 0.0
    for place in range(len(heights) - 1, -1, -1):
        limit = heights[place + 1] - _ROW if place + 1 < len(heights) else heights[place] - over
        heights[place] = min(heights[place], limit)
    return list(zip(wanted, heights, strict=True))


def _label(name: str, color: str, y: float) -> Markup:
    short = name if len(name) <= _SHORT else f"{name[: _SHORT - 1]}…"
    return Markup('<text x="{}" y="{}" fill="{}" class="name">{}</text>').format(
        _WIDTH - _RIGHT + 6, round(y, 1), color, escape(short)
    )
