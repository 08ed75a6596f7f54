"""Heads over training: the layer × head grid at every checkpoint, role changes, and how many heads can be pruned."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._curves import first_seed
from infoflow.report._embedding import packed
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel
from infoflow.report._in_words import counted, ends_words, listed, number
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount
from infoflow.report.heads._matter import HEAD_IMPORTANCE
from infoflow.report.heads._statistics import HEAD_TABLES, KINDS, Statistic, head_statistics, kind_label
from infoflow.training import SUFFIX, select_steps

from ..measures import HEAD_ROLE_EVENTS, PRUNABLE_BY_UPDATE, ROLE_TURNOVER
from ._course import CheckpointTables, course_lines, means, notes
from ._roles import RoleSpan, ranked, role_spans, timeline, turnover_panels

ROLES = Method(
    id="roles-over-training",
    title="Roles over training",
    text="""
    A role is born at the first of two consecutive checkpoints at which a head holds it, and dies at the first of two at
    which the head does not hold it; at the last checkpoint, one is enough. The event happened somewhere between this
    checkpoint and the preceding one. A change at a single checkpoint is not counted. A head keeps its number within a
    training, but numbers mean nothing across seeds, so one seed is drawn. At each checkpoint, heads are selected for a
    role on one half of the sentences, and their 95% interval on the other half must exceed the role's limit. Of the
    selected heads that are no better than the limit, at most one in forty holds the role by chance
    (<code>role_turnover</code> has the number).
    """,
)
_MOST_STEPS = 60
_TURNOVER = (
    "The same heads? One row per role that two heads or more hold: the overlap (Jaccard index, 0 to 1) of its "
    "heads with those at the previous checkpoint; dashed: with those at the last checkpoint; dashed grey: the "
    "overlap of random sets of the same size. A low line under a thick bar means that the role stays but its "
    "heads change."
)
_LEVELS = 2000  # quantisation steps: finer than a colour or three digits can show
_MISSING = 65535
_FACTS = ("id", "label", "unit", "explanation", "signed", "margin")


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


def _heads(course: CheckpointTables) -> Drawn | None:
    spans = role_spans(course)
    rows, statistics = _statistics(course)
    grids = _grids(course, rows, spans)
    if not grids:
        return None
    roles = ranked(spans)
    thinned = any(len(grid.updates) > _MOST_STEPS for grid in grids)
    grids = [replace(grid, updates=_thin(grid.updates)) for grid in grids]
    facts = [{name: getattr(one, name) for name in _FACTS} | {"top": float(f"{one.top:.3g}")} for one in statistics]
    drawn = [_payload(grid, rows, statistics, spans, roles) for grid in grids]
    live = {"statistics": facts, "roles": roles, "grids": drawn}
    turnover = turnover_panels(course)
    measured = [f"{name}{SUFFIX}" for name in HEAD_TABLES if name in course]
    return Drawn(
        data=_data(rows, spans),
        panels=[*_timelines(course, spans, grids), *turnover],
        answer=_sentences(course, spans) or [_statistic_sentence(course, rows, statistics[0])],
        caption=f"{_seeds_note(course)}{' Only 60 of the checkpoints are drawn.' if thinned else ''} All checkpoints "
        "and models share one colour scale.",
        payload={"live": live, "blocks": {grid.id: packed(_numbers(grid, rows, statistics)) for grid in grids}},
        facts={"turnover": _TURNOVER if turnover else ""},
        tables=[HEAD_ROLE_EVENTS.name, *([ROLE_TURNOVER.name] if turnover else []), *measured],
    )


def _statistics(course: CheckpointTables) -> tuple[pd.DataFrame, list[Statistic]]:
    """Rows of the first seed at every checkpoint with their statistic; each statistic has one scale for all steps."""
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
    held, order = pd.DataFrame(spans, columns=list(RoleSpan._fields)), list(KINDS)
    grids = []
    for series in course.models.series:
        parts = [frame[frame["series"] == series.key] for frame in (rows, held) if len(frame)]
        pairs = {pair for part in parts for pair in part[["stack", "kind"]].itertuples(index=False, name=None)}
        for stack, kind in sorted(pairs, key=lambda pair: (order.index(pair) if pair in order else 99, pair)):
            own = [part[(part["stack"] == stack) & (part["kind"] == kind)] for part in parts]
            layers, heads = (int(max(part[name].max() for part in own if len(part))) + 1 for name in ("layer", "head"))
            measured = {int(u) for part in own if "update" in part for u in part["update"]}
            known = measured or {int(u) for u in course.clocks.loc[course.clocks["series"] == series.key, "update"]}
            sizes = {"layers": layers, "heads": heads, "updates": sorted(known)}
            grids.append(_Grid(series=series, stack=str(stack), kind=str(kind), **sizes))
    return grids


def _thin(updates: list[int]) -> list[int]:
    if len(updates) <= _MOST_STEPS:
        return updates
    later = [update for update in updates if update > 0]
    return [*([0] if 0 in updates else []), *select_steps(later, _MOST_STEPS - 1)]


def _payload(
    grid: _Grid, rows: pd.DataFrame, statistics: list[Statistic], spans: list[RoleSpan], roles: list[str]
) -> dict[str, Any]:
    own = [span for span in spans if (span.series, span.stack, span.kind) == (grid.series.key, grid.stack, grid.kind)]
    known = _of_grid(rows, grid) if len(rows) else rows
    return {
        "id": grid.id,
        "label": grid.series.label,
        "kind": kind_label(grid.stack, grid.kind),
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
        ],
    }


def _of_grid(rows: pd.DataFrame, grid: _Grid) -> pd.DataFrame:
    return rows[(rows["series"] == grid.series.key) & (rows["stack"] == grid.stack) & (rows["kind"] == grid.kind)]


def _numbers(grid: _Grid, rows: pd.DataFrame, statistics: list[Statistic]) -> np.ndarray:
    """The grid's statistics, (statistic, step, head), as integers: 0 stands for 0 (or −top), 2,000 for top."""
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


def _data(rows: pd.DataFrame, spans: list[RoleSpan]) -> pd.DataFrame:
    """Spans of roles, and the numbers of the first statistic; other statistics are in the run's tables."""
    held = pd.DataFrame(spans, columns=list(RoleSpan._fields))
    if len(held):
        return held.assign(until=held["until"].astype("Int64"))
    first = rows["statistic"].iloc[0]
    return rows[rows["statistic"] == first].drop(columns="shown")


def _seeds_note(course: CheckpointTables) -> str:
    frames = [course[name] for name in (HEAD_ROLE_EVENTS.name, *HEAD_TABLES)]
    seeds = max((len(set(frame["seed"])) for frame in frames if "seed" in frame), default=1)
    return f"The first of {seeds} seeds is drawn." if seeds > 1 else "One seed."


def _sentences(course: CheckpointTables, spans: list[RoleSpan]) -> list[str]:
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
    parts = []
    for series, heads in course.each(rows[rows["statistic"] == one.id]):
        by_step = heads.groupby("update")["shown"].agg(["mean", "max"])
        mean, highest = (ends_words(by_step[of], places=2) for of in ("mean", "max"))
        parts.append(f"{series.label} {mean} (highest head {highest})")
    return f"Mean {one.label} over heads, from the first to the last checkpoint: {listed(parts)}."


def _timelines(course: CheckpointTables, spans: list[RoleSpan], grids: list[_Grid]) -> list[Panel]:
    panels = []
    for series in course.models.series:
        own = [span for span in spans if span.series == series.key]
        if own:
            updates = next(grid.updates for grid in grids if grid.series.key == series.key)
            panels.append(Panel(spec=timeline(course.axis, own, series, updates), title=f"{series.label}: roles"))
    return panels


def _prunable(course: CheckpointTables) -> Drawn | None:
    frame = course[PRUNABLE_BY_UPDATE.name]
    if frame.empty or "importance" not in set(frame["order"]):
        return None
    every = means(frame[frame["kind"] == "all"], ["order"])
    table, control = every[every["order"] == "importance"], every[every["order"] == "random"]
    y, parts = amount("y", "value", "share of heads", (0.0, 1.0), ticks=5), []
    for series, own in course.each(table):
        own = own.sort_values("update")
        first, last = own.iloc[0], own.iloc[-1]
        random = control[(control["series"] == series.key) & (control["update"] == last["update"])]["value"]
        against = f" (in random order {_percent(random.iloc[0])})" if len(random) else ""
        start = f"{_percent(first['value'])} at update {int(first['update']):,} and " if len(own) > 1 else ""
        parts.append(f"{series.label} {start}{_percent(last['value'])} at the end{against}")
    look = {"height": 200, "room": 0.2, "control": control}
    chart = course_lines(course, table, y, "value:Q|of the heads|.0%", **look)  # type: ignore[arg-type]
    return Drawn(
        data=frame.drop(columns=["series", "replicates"], errors="ignore"),
        panels=[Panel(spec=chart)],
        answer=[f"Heads that can be removed: {listed(parts)}."],
        caption=notes(course, table),
    )


def _percent(share: float) -> str:
    return f"{number(100 * float(share), 0)}%"


HEADS = DeclaredFigure(
    name="over-training/heads",
    id="heads-over-training",
    question="When does each head take on its role?",
    how_to_read=(
        "Small grids: one per checkpoint, with layers upwards and heads across, as in all other figures of "
        "heads; choose below what they show. Click a grid to move the slider there and see it enlarged. Whatever "
        "the first grid shows needs no training: random weights show it too.",
        "Timeline: one row per role; the thicker the bar, the more heads hold it. Triangles pointing up are "
        "births, triangles pointing down are deaths, each at the first checkpoint that shows it; the thin line "
        "reaches back to the checkpoint before.",
        "{turnover}",
    ),
    method=ROLES,
    findings=("time:T-6", "time:T-7", "time:T-10"),
    template="heads_over_training.html.jinja",
    draw=_heads,
)
PRUNABLE = DeclaredFigure(
    name="over-training/prunable-heads",
    id="prunable-over-training",
    question="When can heads be removed?",
    how_to_read=(
        "Up: the largest share of heads that can be removed, least important first, while the model keeps nine "
        "tenths of its gain over unigram frequencies; dashed grey: in random order. Very early, a model has gained "
        "nothing yet, so there is no share to show.",
        "The data also list how many heads of the half that is removed first differ from those at the previous "
        "checkpoint, and from those at the end.",
    ),
    method=HEAD_IMPORTANCE,
    tables=(PRUNABLE_BY_UPDATE.name,),
    findings=("heads:M7", "time:T-15"),
    draw=_prunable,
)
