"""When heads hold roles: a timeline of each role, and whether its heads stay the same."""

import json
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pandas as pd

from infoflow.report._curves import first_seed
from infoflow.report._figure import Panel
from infoflow.report._in_words import listed
from infoflow.report._theme import Series
from infoflow.report.forms._chart import CONTROL, lit, tips
from infoflow.report.forms._lines import folded
from infoflow.report.forms._marks import Channel, Constant, Layer, calculated, channel, draw, filtered
from infoflow.report.forms._over_time import HOLLOW_MARK, ROW_NAME, TOUCH, TimeAxis, timed

from ..measures import HEAD_ROLE_EVENTS, ROLE_TURNOVER
from ._course import CheckpointTables

_PLACE = ["series", "stack", "kind", "layer", "head", "role"]
_MOST_ROLES, _ROW = 14, 26
_MOST_SETS, _TALL_ROW = 10, 40
_BASE, _TALL = 0.94, 0.62  # in the row of a set: where 0 lies, and the height from 0 to 1
_OVERLAPS = {"jaccard_previous": ("previous", [1, 0]), "jaccard_final": ("last", [4, 3])}
_CHANCE = "expected_previous"


class RoleSpan(NamedTuple):
    """A role that a head holds from one checkpoint until another (None: to the end)."""

    series: str
    stack: str
    kind: str
    layer: int
    head: int
    role: str
    since: int
    until: int | None
    initial: bool  # held before the first update
    before: int  # the checkpoint before the birth

    def holds_at(self, update: int) -> bool:
        return self.since <= update and (self.until is None or update < self.until)


def role_spans(course: CheckpointTables) -> list[RoleSpan]:
    """The spans of each line's first seed."""
    events = first_seed(course[HEAD_ROLE_EVENTS.name])
    if events.empty:
        return []
    spans = []
    place: Any
    order = events.assign(first=events["event"] != "initial").sort_values(["first", "after"], kind="stable")
    for place, own in order.groupby(_PLACE, sort=False):
        begun: tuple[int, int, bool] | None = None  # since, before, initial
        for row in own.itertuples():
            if row.event == "death":
                since, before, initial = begun or (0, 0, True)
                spans.append(RoleSpan(*place, since, int(row.after), initial, before))
                begun = None
            elif begun is None:
                at_start = row.event == "initial"
                begun = (0, 0, True) if at_start else (int(row.after), int(row.before), False)
        if begun is not None:
            spans.append(RoleSpan(*place, begun[0], None, begun[2], begun[1]))
    return spans


def ranked(spans: list[RoleSpan]) -> list[str]:
    """The roles that some head held, the most frequent first."""
    roles = pd.Series([span.role for span in spans], dtype=object)
    return list(roles.value_counts(sort=True).index) if len(roles) else []


def timeline(axis: TimeAxis, spans: list[RoleSpan], series: Series, updates: list[int]) -> dict[str, Any]:
    """One row per role: how many heads hold it, and the checkpoints at which heads take and leave it."""
    roles = ranked(spans)[:_MOST_ROLES]
    bars = _bars(spans, roles, updates)
    row = channel("y", "role:N", sort=roles, axis=None, scale={"domain": roles}, bandPosition=0.72)
    middle = channel("y", "role:N", sort=roles, axis=None, bandPosition=0.5)
    sizes = {"domain": [0, max(int(bars["size"].max()), 1)], "range": [0, 9]}
    bar = {"color": series.color, "strokeCap": "butt", "opacity": lit(0.4)}
    bar |= {"strokeWidth": channel("strokeWidth", "size:Q", scale=sizes, legend=None)}
    tooltip = tips("role:N", "size:Q|heads", "since:Q|from update|,", "until:Q|to|,")
    base = axis.placed(bars, series.key, x="since", x2="until")
    layers = [
        axis.marker([series.key]),
        draw("rule", base, bar, x=axis.channel(), x2="x2:Q", y=row, tooltip=tooltip),
        *_event_marks(axis, _events(spans, roles), series, row),
        draw("text", pd.DataFrame({"role": roles}), ROW_NAME, x=Constant(2), y=middle, text="role:N"),
    ]
    return axis.finished(layers, _ROW * len(roles) + 4, [series.key])


def _bars(spans: list[RoleSpan], roles: list[str], updates: list[int]) -> pd.DataFrame:
    """Periods with a constant number of heads in a role."""
    rows = []
    for role in roles:
        own = [span for span in spans if span.role == role]
        sizes = [sum(span.holds_at(update) for span in own) for update in updates]
        following = [*updates[1:], updates[-1]]
        for size, group in groupby(zip(sizes, updates, following, strict=True), key=itemgetter(0)):
            period = list(group)
            if size:
                rows.append({"role": role, "size": size, "since": period[0][1], "until": period[-1][2]})
    return pd.DataFrame(rows, columns=["role", "size", "since", "until"])


def _events(spans: list[RoleSpan], roles: list[str]) -> pd.DataFrame:
    rows = []
    for span in spans:
        if span.role in roles:
            head = {"role": span.role, "head": f"{span.layer}.{span.head}"}
            if not span.initial:
                rows.append({**head, "event": "birth", "update": span.since, "before": span.before})
            if span.until is not None:
                rows.append({**head, "event": "death", "update": span.until, "before": span.until})
    columns = ["role", "event", "update"]
    grouped = pd.DataFrame(rows, columns=[*columns, "before", "head"]).groupby(columns, sort=False)
    heads = {"heads": ("head", lambda own: listed(list(own))), "count": ("head", "size")}
    return grouped.agg(before=("before", "min"), **heads).reset_index()


def _event_marks(axis: TimeAxis, events: pd.DataFrame, series: Series, row: Channel) -> list[Layer]:
    if events.empty:
        return []
    base = axis.placed(events, series.key, x="update", x1="before")
    at, full = {"x": axis.channel(), "y": row, "size": 52, "opacity": lit()}, {"filled": True, "color": series.color}
    at |= {"tooltip": tips("event:N", "role:N", "update:Q||,", "before:Q|after update|,", "heads:N|layer.head")}
    hollow = {**HOLLOW_MARK, "stroke": series.color}
    back = {"x": axis.channel("x1"), "x2": "x:Q", "y": row, "color": "var(--soft)", "strokeWidth": 1}
    return [
        draw("rule", base, back),
        draw("point", filtered(base, "datum.event === 'birth'"), at, full, shape="triangle-up"),
        draw("point", filtered(base, "datum.event === 'death'"), at, hollow, shape="triangle-down"),
    ]


def turnover_panels(course: CheckpointTables) -> list[Panel]:
    """One panel per model's first seed, with a row for each role that several heads held at once."""
    frame = first_seed(course[ROLE_TURNOVER.name])
    if frame.empty:
        return []
    panels = []
    for series, own in course.each(frame):
        named = own.assign(role=own["role"].where(own["kind"] == "self", own["role"] + " (" + own["kind"] + ")"))
        most = named.groupby("role")["size"].max()
        # A single head is either the same or not: there is no overlap to draw.
        roles = [str(role) for role in most[most > 1].sort_values(ascending=False, kind="stable").index][:_MOST_SETS]
        if roles:
            chart = _overlaps(course.axis, named[named["role"].isin(roles)], series, roles)
            panels.append(Panel(spec=chart, title=f"{series.label}: the same heads?"))
    return panels


def _overlaps(axis: TimeAxis, rows: pd.DataFrame, series: Series, roles: list[str]) -> dict[str, Any]:
    rows = rows.assign(row=rows["role"].map(roles.index)).sort_values(["row", "update"])
    y = channel("y", "y:Q", axis=None, scale={"domain": [0, len(roles)], "reverse": True, "nice": False})
    at = {"x": axis.channel(), "y": y}
    chance = draw("line", _overlap(rows, _CHANCE, series), CONTROL, at, detail="role:N", opacity=lit(0.8))
    layers = [axis.marker([series.key]), chance]
    for column, (stated, dash) in _OVERLAPS.items():
        base, look = _overlap(rows, column, series), {"color": series.color, "strokeWidth": 1.6, "strokeDash": dash}
        layers.append(draw("line", base, at, look, detail="role:N", opacity=lit()))
        tooltip = tips("role:N", "update:Q||,", "size:Q|heads", f"value:Q|overlap with the {stated} heads|.2f")
        layers.append(draw("point", base, at, TOUCH, size=90, tooltip=tooltip))
    names = pd.DataFrame({"role": roles, "y": [place + 0.27 for place in range(len(roles))]})
    layers.append(draw("text", names, ROW_NAME, x=Constant(2), y=y, text="role:N"))
    return axis.finished(layers, _TALL_ROW * len(roles), [series.key])


def _overlap(rows: pd.DataFrame, column: str, series: Series) -> Layer:
    """Points of an overlap column; an empty set has no overlap."""
    known = rows[rows["size"] > 0].dropna(subset=column)
    shown = known[["role", "row", "update", "size"]].assign(value=known[column].round(3))
    height = f"datum.row + {_BASE} - {_TALL} * datum.value"
    return timed(calculated(folded(shown, ["role", "row"]), series=json.dumps(series.key), y=height))
