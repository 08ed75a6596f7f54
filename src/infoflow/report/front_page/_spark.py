"""The small SVGs of cards, drawn without Vega so that the front page shows them at once in any browser."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup, escape

from infoflow.heads import HEAD_ROLES

from .._in_words import counted, decimals, listed, number, two_digits
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._chart import spread
from ._measures import Card

_WIDTH, _HEIGHT = 320, 146
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 88, 22, 24  # the left margin fits −0.0089
_ROW = 13  # pixels between labels
_NAMED = 6  # up to this number, lines are labelled at their ends
_SHORT = 12  # maximum number of characters of a name
_GREY = "var(--control)"
_UNTRAINED, _CONTROL = "untrained", (4, 3)  # name and dash of the control


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
        near = [frame.y(other.points[-1][1]) for other in named if other.name == line.name == _UNTRAINED]
        if all(abs(height - frame.y(line.points[-1][1])) >= _ROW for height in near):
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
    heights = spread([frame.y(line.points[-1][1]) + 4 for line in wanted], _ROW, float(_HEIGHT - _BOTTOM + 4))
    return list(zip(wanted, heights, strict=True))


def _label(name: str, color: str, y: float) -> Markup:
    short = name if len(name) <= _SHORT else f"{name[: _SHORT - 1]}…"
    return Markup('<text x="{}" y="{}" fill="{}" class="name">{}</text>').format(
        _WIDTH - _RIGHT + 6, round(y, 1), color, escape(short)
    )


_ROWS = 6  # maximum number of roles in the picture
_NAMES = {"positional -1": "previous token", "positional +1": "next token"}
_BAR, _BARS_LEFT, _BARS_RIGHT = 21, 132, 12  # pixels per role, and at the sides


def roles_card(tables: ModelTables) -> Card | None:
    """The card of a run with the table `head_roles`; None without it."""
    roles = tables.of_run(HEAD_ROLES.name)
    if roles is None:
        return None
    scores = roles.dropna(subset=["held_out"]).sort_values(["holds", "held_out"], ascending=False)
    best = scores.drop_duplicates("role").head(_ROWS)  # held roles and high scores first
    if best.empty:
        return None
    held = roles[roles["holds"]]
    places = ["stack", "kind", "layer", "head"]
    every, holding = len(roles[places].drop_duplicates()), len(held[places].drop_duplicates())
    question = "Which roles do heads hold?"
    if held.empty:
        sentence = f"None of {every} heads holds a role: no score is clearly above its limit."
    else:
        groups = held.assign(role=held["role"].map(_kind)).drop_duplicates([*places, "role"])["role"].value_counts()
        stated = listed([f"{name} ({count})" for name, count in groups.items()])
        sentence = f"{holding} of {counted(every, 'head')} hold a role: {stated}."
    first = best.iloc[0]
    name = _NAMES.get(str(first["role"]), str(first["role"]))
    head = f"{name[:1].upper()}{name[1:]}, layer {first['layer']} head {first['head']}"
    digits = decimals(first["held_out_low"], first["held_out_high"], first["held_out"])
    value, low, high = (number(float(first[name]), digits) for name in ("held_out", "held_out_low", "held_out_high"))
    return Card(
        figure="head-map",
        question=question,
        sentence=sentence,
        difference=f"{head}: {value} ({low} to {high}); "
        f"limit {two_digits(first['limit'])}, control {two_digits(first['baseline'])}",
        clear=bool(len(held)),
        picture=_bars(best, tables.models.series[0].color, f"{question} {sentence}"),
    )


def _kind(role: str) -> str:
    """The group of a role; all relations count together, since there are many."""
    return "positional" if role.startswith("positional") else "syntactic" if "→" in role else role


def _bars(best: pd.DataFrame, color: str, description: str) -> Markup:
    """A bar from 0 to 1 per role with its interval; a tick is the limit for holding the role."""

    def x(share: float) -> float:
        return round(_BARS_LEFT + (_WIDTH - _BARS_LEFT - _BARS_RIGHT) * min(max(share, 0.0), 1.0), 1)

    line = Markup('<line x1="{}" x2="{}" y1="{}" y2="{}" stroke="{}" stroke-width="{}"/>')
    parts = []
    for index, row in enumerate(best.to_dict("records")):
        y, name = _BAR * index + 13, _NAMES.get(row["role"], row["role"]).replace("dependent", "dep")
        head = escape(f"{name} {row['layer']}.{row['head']}")
        parts += [
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(_BARS_LEFT - 6, y + 4, head),
            line.format(x(0), x(row["held_out"]), y, y, color if row["holds"] else "var(--control)", 7),
            line.format(x(row["held_out_low"]), x(row["held_out_high"]), y, y, "currentColor", 1.5),
            line.format(x(row["limit"]), x(row["limit"]), y - 7, y + 7, "currentColor", 1),
        ]
    base = _BAR * len(best) + 14
    axis = [(x(0), "0"), (x(1), "1"), ((x(0) + x(1)) / 2, "score; tick: limit")]
    parts += [Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(at, base, text) for at, text in axis]
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, base + 4, description, Markup("").join(parts)
    )
