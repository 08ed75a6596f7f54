"""Heads over training: the layer × head grid at every checkpoint, and when heads take and leave roles."""

from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from infoflow.over_training import SUFFIX, select_steps

from .._binary import packed
from .._figure import Method, Panel, ReportFigure
from .._numbers import counted, listed, number
from .._series import Series
from ..forms._chart import lit, tips
from ..forms._over_time import ROW_NAME
from ..forms._time_axis import TimeAxis
from ..heads._names import KINDS, kind_label
from ..heads._statistics import HEAD_TABLES, Statistic, head_statistics
from ._course import CheckpointTables
from ._role_spans import RoleSpan, first_seed, role_spans, with_places
from ._turnover import turnover_panels

ROLES = Method(
    id="roles-over-training",
    title="Roles over training",
    text="""
    A role is born at the first of two consecutive checkpoints at which a head holds it, and dies at the first of two
    at which it does not; at the last checkpoint one is enough. Either happened somewhere between that checkpoint and
    the one before. Single checkpoints that differ are flickers and no events. A head keeps its number inside a
    training; between seeds numbers mean nothing, so that one seed is drawn.
    """,
)
_MOST_STEPS, _MOST_ROLES, _ROW = 60, 14, 26
_TURNOVER = (
    "The same heads? A row for each role that two heads or more hold: the overlap (Jaccard index, 0 to 1) of its heads "
    "with those of the checkpoint before, dashed with those of the last one, dashed grey what random sets as large "
    "share. A low line under a thick bar: the role stays, its heads change."
)
_LEVELS = 2000  # steps of a number: finer than what a colour or three digits show
_MISSING = 65535


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Grid:
    """The heads of one kind of attention of one model."""

    series: Series
    stack: str
    kind: str
    layers: int
    heads: int
    updates: list[int]

    @property
    def id(self) -> str:
        return f"{self.series.key}/{self.stack}/{self.kind}"

    def number(self, layer: int, head: int) -> int:
        return layer * self.heads + head


def heads_figure(course: CheckpointTables) -> ReportFigure | None:
    """The grids by statistic and role, and the timeline of roles; None where no table is about heads."""
    spans = role_spans(course)
    rows, statistics = _statistics(course)
    grids = _grids(course, rows, spans)
    if not grids:
        return None
    roles = _ranked([span.role for span in spans])
    thinned = any(len(grid.updates) > _MOST_STEPS for grid in grids)
    grids = [replace(grid, updates=_thin(grid.updates)) for grid in grids]
    live = {
        "statistics": [_facts(one) for one in statistics],
        "roles": roles,
        "grids": [_payload(grid, rows, statistics, spans, roles) for grid in grids],
    }
    blocks = {grid.id: packed(_numbers(grid, rows, statistics)) for grid in grids}
    timelines, turnover = _timelines(course, spans, grids), turnover_panels(course)
    return ReportFigure(
        id="heads-over-training",
        question="When does each head become what it is?",
        answer=_sentences(course, spans) or [_statistic_sentence(course, rows, statistics[0])],
        panels=[*timelines, *turnover],
        caption=f"{_seeds_note(course)}{' Of more than 60 checkpoints 60 are drawn.' if thinned else ''} Colours have "
        "one scale over all steps and models.",
        how_to_read=[
            "Small grids: one for each checkpoint, layers upwards and heads across, as in all other figures of heads; "
            "choose below what they show. A click on one moves the slider there, and the large grid shows it. What the "
            "first grid has needs no training: some scores are those of random weights.",
            "Timeline: a row for each role, the thicker its bar, the more heads hold it. Triangles up are births, down "
            "deaths, at the checkpoint that showed them first; the thin line behind each goes back to the one before.",
            *([_TURNOVER] if turnover else []),
        ],
        method=ROLES,
        data=_data(grids, rows, spans),
        tables=(
            "head_role_events",
            *(["role_turnover"] if turnover else []),
            *(f"{name}{SUFFIX}" for name in HEAD_TABLES if name in course),
        ),
        findings=("time:T-6", "time:T-7", "time:T-10"),
        template="heads_over_training.html.jinja",
        payload={"live": live, "blocks": blocks},
    )


def _statistics(course: CheckpointTables) -> tuple[pd.DataFrame, list[Statistic]]:
    """Rows of the first seed at every checkpoint with their statistic; of each statistic one scale for all steps."""
    frames = {name: first_seed(course[name]) for name in HEAD_TABLES if name in course}
    parts, found = [], {}
    for update in sorted({int(u) for frame in frames.values() for u in frame["update"]}):
        now = {name: frame[frame["update"] == update] for name, frame in frames.items()}
        rows, statistics = head_statistics({name: frame for name, frame in now.items() if len(frame)})
        if len(rows):
            parts.append(rows)
            found |= {one.id: one for one in statistics}
    if not parts:
        return pd.DataFrame(), []
    kept = ["series", "stack", "kind", "layer", "head", "update", "statistic", "value", "baseline"]
    rows = pd.concat(parts, ignore_index=True).reindex(columns=kept)
    rows = rows[rows["statistic"].isin(list(found))]
    margins = {one.id for one in found.values() if one.margin}
    shown = rows["value"].where(~rows["statistic"].isin(margins), rows["value"] - rows["baseline"])
    rows = rows.assign(shown=shown)
    highest = rows["shown"].abs().groupby(rows["statistic"]).max()
    return rows, [replace(one, top=float(highest[one.id]) or 1.0) for one in found.values()]


def _grids(course: CheckpointTables, rows: pd.DataFrame, spans: list[RoleSpan]) -> list[_Grid]:
    grids = []
    held = pd.DataFrame(spans, columns=list(RoleSpan._fields))
    roles = with_places(first_seed(course["head_roles"]))
    for series in course.models.series:
        pairs = set()
        parts = [frame[frame["series"] == series.key] for frame in (rows, held, roles) if len(frame)]
        for part in parts:
            pairs |= set(part[["stack", "kind"]].itertuples(index=False, name=None))
        order = list(KINDS)
        for stack, kind in sorted(pairs, key=lambda pair: (order.index(pair) if pair in order else 99, pair)):
            own = [part[(part["stack"] == stack) & (part["kind"] == kind)] for part in parts]
            size = {name: int(max(part[name].max() for part in own if len(part))) + 1 for name in ("layer", "head")}
            updates = sorted({int(u) for u in course.clocks.loc[course.clocks["series"] == series.key, "update"]})
            measured = sorted({int(u) for part in own if "update" in part for u in part["update"]})
            sizes = {"layers": size["layer"], "heads": size["head"], "updates": measured or updates}
            grids.append(_Grid(series=series, stack=str(stack), kind=str(kind), **sizes))
    return grids


def _thin(updates: list[int]) -> list[int]:
    if len(updates) <= _MOST_STEPS:
        return updates
    later = [update for update in updates if update > 0]
    return [*([0] if 0 in updates else []), *select_steps(later, _MOST_STEPS - 1)]


def _facts(one: Statistic) -> dict[str, Any]:
    names = ("id", "label", "unit", "explanation", "signed", "margin")
    return {**{name: getattr(one, name) for name in names}, "top": float(f"{one.top:.3g}")}


def _payload(
    grid: _Grid, rows: pd.DataFrame, statistics: list[Statistic], spans: list[RoleSpan], roles: list[str]
) -> dict[str, Any]:
    own = [span for span in spans if (span.series, span.stack, span.kind) == (grid.series.key, grid.stack, grid.kind)]
    known = _of_grid(rows, grid) if len(rows) else rows
    return {
        "id": grid.id,
        "label": grid.series.label,
        "kind": kind_label(grid.stack, grid.kind) if grid.stack else "attention",
        "slot": grid.series.slot,
        "layers": grid.layers,
        "heads": grid.heads,
        "updates": grid.updates,
        "statistics": [one.id for one in statistics if len(known) and one.id in set(known["statistic"])],
        "spans": [
            [
                roles.index(span.role),
                grid.number(span.layer, span.head),
                span.since,
                -1 if span.until is None else span.until,
            ]
            for span in own
            if span.role in roles
        ],
    }


def _of_grid(rows: pd.DataFrame, grid: _Grid) -> pd.DataFrame:
    return rows[(rows["series"] == grid.series.key) & (rows["stack"] == grid.stack) & (rows["kind"] == grid.kind)]


def _numbers(grid: _Grid, rows: pd.DataFrame, statistics: list[Statistic]) -> np.ndarray:
    """(statistic, step, head) of the statistics that the grid has: 0 to 2,000 from nothing (or −top) to top."""
    own = _of_grid(rows, grid) if len(rows) else rows
    blocks = []
    for one in statistics:
        part = own[own["statistic"] == one.id] if len(own) else own
        if part.empty:
            continue
        place = part["layer"].astype(int) * grid.heads + part["head"].astype(int)
        table = part.assign(place=place).pivot_table(index="update", columns="place", values="shown", dropna=False)
        table = table.reindex(index=grid.updates, columns=range(grid.layers * grid.heads))
        low = -one.top if one.signed else 0.0
        share = (table.to_numpy(dtype=float) - low) / (one.top - low)
        steps = np.rint(np.clip(share, 0, 1) * _LEVELS)
        blocks.append(np.where(np.isnan(steps), _MISSING, steps).astype(np.uint16))
    return np.concatenate(blocks).ravel() if blocks else np.zeros(0, dtype=np.uint16)


def _ranked(roles: list[str]) -> list[str]:
    """The roles that some head held, the most frequent first."""
    return list(pd.Series(roles, dtype=object).value_counts(sort=True).index) if roles else []


def _data(grids: list[_Grid], rows: pd.DataFrame, spans: list[RoleSpan]) -> pd.DataFrame:
    """The spans of roles, and the numbers of the first statistic: all others are in the run's tables."""
    held = pd.DataFrame(spans, columns=list(RoleSpan._fields))
    if len(held):
        return held.assign(until=held["until"].astype("Int64"))
    first = rows["statistic"].iloc[0]
    return rows[rows["statistic"] == first].drop(columns="shown")


def _seeds_note(course: CheckpointTables) -> str:
    frames = [course[name] for name in ("head_role_events", *HEAD_TABLES)]
    seeds = max((len(set(frame["seed"])) for frame in frames if "seed" in frame), default=1)
    return f"The first of {seeds} seeds is drawn." if seeds > 1 else "One seed."


def _sentences(course: CheckpointTables, spans: list[RoleSpan]) -> list[str]:
    """Births, deaths, and the first role that heads took, for each model."""
    parts = []
    for series in course.models.series:
        own = [span for span in spans if span.series == series.key]
        if not own:
            continue
        born, died = [span for span in own if not span.initial], [span for span in own if span.until is not None]
        text = f"{series.label} {counted(len(born), 'birth')} and {counted(len(died), 'death')}"
        if born:
            first = min(born, key=lambda span: span.since)
            when = f"between updates {first.before:,} and {first.since:,}"
            text += f", the first a head of layer {first.layer} ({first.role}) {when}"
        parts.append(text)
    return [f"Roles of heads: {'; '.join(parts)}."] if parts else []


def _statistic_sentence(course: CheckpointTables, rows: pd.DataFrame, one: Statistic) -> str:
    """How far the mean head and the strongest one moved, for each model."""
    own = rows[rows["statistic"] == one.id]
    parts = []
    for series, heads in course.each(own):
        by_step = heads.groupby("update")["shown"].agg(["mean", "max"])
        ends = [f"{number(by_step[of].iloc[0], 2)} to {number(by_step[of].iloc[-1], 2)}" for of in ("mean", "max")]
        parts.append(f"{series.label} from {ends[0]} (its highest head from {ends[1]})")
    return f"Mean {one.label} over heads, from the first to the last checkpoint: {listed(parts)}."


def _timelines(course: CheckpointTables, spans: list[RoleSpan], grids: list[_Grid]) -> list[Panel]:
    panels = []
    for series in course.models.series:
        own = [span for span in spans if span.series == series.key]
        if own:
            updates = next(grid.updates for grid in grids if grid.series.key == series.key)
            panels.append(Panel(spec=_timeline(course.axis, own, series, updates), title=f"{series.label}: roles"))
    return panels


def _timeline(axis: TimeAxis, spans: list[RoleSpan], series: Series, updates: list[int]) -> dict[str, Any]:
    roles = _ranked([span.role for span in spans])[:_MOST_ROLES]
    bars, events = _bars(spans, roles, updates), _events(spans, roles)
    bars = bars.assign(
        since_at=axis.places(series.key, bars["since"]).tolist(),
        until_at=axis.places(series.key, bars["until"]).tolist(),
    )
    base = alt.Chart(bars).transform_calculate(x="datum.since_at[clock]", x2="datum.until_at[clock]")
    row = alt.Y("role:N", sort=roles, axis=None, scale=alt.Scale(domain=roles), bandPosition=0.72)
    width = alt.StrokeWidth(
        "size:Q", scale=alt.Scale(domain=[0, max(int(bars["size"].max()), 1)], range=[0, 9]), legend=None
    )
    place = {"x": axis.channel(), "x2": alt.X2("x2:Q"), "y": row}
    size = base.mark_rule(color=series.color, strokeCap="butt").encode(
        **place,
        strokeWidth=width,
        opacity=lit(0.4),
        tooltip=tips("role:N", "size:Q|heads", "since:Q|from update|,", "until:Q|to|,"),
    )
    names = alt.Chart(pd.DataFrame({"role": roles})).mark_text(**ROW_NAME)
    layers = [axis.marker([series.key]), size]
    if len(events):
        layers += _event_marks(axis, events, series, row)
    middle = alt.Y("role:N", sort=roles, axis=None, bandPosition=0.5)
    layers.append(names.encode(x=alt.XValue(2), y=middle, text=alt.Text("role:N")))
    return axis.finished(layers, _ROW * len(roles) + 4, [series.key])


def _bars(spans: list[RoleSpan], roles: list[str], updates: list[int]) -> pd.DataFrame:
    """Stretches of checkpoints with one number of heads in a role."""
    rows = []
    for role in roles:
        own = [span for span in spans if span.role == role]
        sizes = [sum(span.holds_at(update) for span in own) for update in updates]
        start = 0
        for place in range(1, len(updates) + 1):
            if place == len(updates) or sizes[place] != sizes[start]:
                if sizes[start]:
                    until = updates[min(place, len(updates) - 1)]
                    rows.append({"role": role, "size": sizes[start], "since": updates[start], "until": until})
                start = place
    return pd.DataFrame(rows, columns=["role", "size", "since", "until"])


def _events(spans: list[RoleSpan], roles: list[str]) -> pd.DataFrame:
    """Births and deaths by role and checkpoint, with the heads they are about."""
    rows = []
    for span in spans:
        head = f"{span.layer}.{span.head}"
        if span.role in roles and not span.initial:
            rows.append(
                {"role": span.role, "event": "birth", "update": span.since, "before": span.before, "head": head}
            )
        if span.role in roles and span.until is not None:
            rows.append({"role": span.role, "event": "death", "update": span.until, "before": span.until, "head": head})
    if not rows:
        return pd.DataFrame()
    grouped = pd.DataFrame(rows).groupby(["role", "event", "update"], sort=False)
    return grouped.agg(
        before=("before", "min"), heads=("head", lambda own: listed(list(own))), count=("head", "size")
    ).reset_index()


def _event_marks(axis: TimeAxis, events: pd.DataFrame, series: Series, row: alt.Y) -> list[alt.Chart]:
    rows = events.assign(
        at=axis.places(series.key, events["update"]).tolist(),
        from_at=axis.places(series.key, events["before"]).tolist(),
    )
    base = alt.Chart(rows).transform_calculate(x="datum.at[clock]", x1="datum.from_at[clock]")
    tooltip = tips("event:N", "role:N", "update:Q||,", "before:Q|after update|,", "heads:N|layer.head")
    thin = base.mark_rule(color="var(--soft)", strokeWidth=1)
    births = base.transform_filter("datum.event === 'birth'").mark_point(
        shape="triangle-up", size=52, filled=True, color=series.color, opacity=1
    )
    deaths = base.transform_filter("datum.event === 'death'").mark_point(
        shape="triangle-down",
        size=52,
        filled=False,
        fill="var(--paper)",
        stroke=series.color,
        strokeWidth=1.6,
        opacity=1,
    )
    at = {"x": axis.channel(), "y": row}
    return [
        thin.encode(x=axis.channel(field="x1"), x2=alt.X2("x:Q"), y=row),
        births.encode(**at, opacity=lit(), tooltip=tooltip),
        deaths.encode(**at, opacity=lit(), tooltip=tooltip),
    ]
