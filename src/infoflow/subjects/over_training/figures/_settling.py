"""Which layers settle first: states and blocks against the finished model, with the schedule alone as the control."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, PanelGroup
from infoflow.report._in_words import counted, listed, number
from infoflow.report._theme import Series
from infoflow.report.forms._chart import CONTROL, amount, lit, tips
from infoflow.report.forms._lines import area
from infoflow.report.forms._marks import Channel, Constant, Layer, channel, draw, filtered, span
from infoflow.report.forms._over_time import HOLLOW_MARK, TimeAxis, layer_color, layer_legend, short, time_lines, timed

from ..measures import CONVERGENCE as CONVERGENCE_TABLE
from ..measures import CONVERGENCE_TIME
from ._course import CheckpointTables, main_stack, means, notes
from ._layers import MEASURES_TEMPLATE

CONVERGENCE = Method(
    id="convergence",
    title="Convergence",
    text="""
    The states of layer <i>l</i> after update <i>t</i> are compared with those of a reference, on the same tokens.
    Normalised: <i>c</i>(<i>t</i>) = (<i>s</i>(<i>t</i>) − <i>s</i>(0)) / (1 − <i>s</i>(0)), undefined where 1 −
    <i>s</i>(0) &lt; .05. A layer has settled at the last upward crossing of .9, interpolated linearly in
    log<sub>2</sub> <i>t</i>. <i>States</i> carry changes of all lower layers. <i>Blocks</i> compare the output of a
    block on the finished model's own input with its final output, so changes of lower layers do not add up. Null
    model: the finished weights plus random directions; each tensor is moved as far from its final value as it was then.
    CKA and PWCCA ignore rotations; displacement (‖<i>X<sub>t</sub></i> − <i>X<sub>r</sub></i>‖ / ‖<i>X<sub>r</sub></i>
    − mean‖) does not.
    """,
)
_KINDS = {"state": "states", "block": "blocks"}
_SIMILARITIES = {
    "cka": "CKA",
    "cka without outliers": "CKA without outlying dimensions",
    "pwcca": "PWCCA",
    "procrustes": "Procrustes",
    "displacement": "displacement",
}
_REFERENCES = {
    "final": "to the end",
    "other-seed": "to another seed's final model",
    "other-objective": "to another objective's final model",
    "previous": "to the preceding checkpoint",
    "initial": "to the start",
}
_FIRST = "cka"  # for references other than the end
_TIMES = ("time", "before", "after")
_HEIGHT = 190


def _curves(course: CheckpointTables) -> Drawn | None:
    frame = main_stack(course[CONVERGENCE_TABLE.name])
    groups, tables = [], []
    for reference, similarity in _choices(frame) if len(frame) else ():
        table = _table(frame[(frame["reference"] == reference) & (frame["similarity"] == similarity)])
        if len(set(table["update"])) > 1:
            groups.append(_group(course, table, reference, similarity))
            tables.append(table.assign(reference=reference, similarity=similarity))
    if not groups:
        return None
    data = pd.concat(tables, ignore_index=True)
    null = [{"label": "null model", "color": "var(--control)"}] if len(data["null"].dropna()) else []
    return Drawn(
        data=data,
        panels=groups[0].panels,
        answer=[_settled(course) or _nearest(course, tables[0])],
        caption=notes(course, data),
        payload={"metrics": groups, "legend": [*layer_legend(data["layer"]), *null]},
    )


def _choices(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Pairs of reference and similarity, the most informative first; references other than the end get one or two."""
    found = set(frame[["reference", "similarity"]].itertuples(index=False, name=None))
    rank = {name: at for at, name in enumerate([*_REFERENCES, *_SIMILARITIES])}
    pairs = sorted(((str(r), str(s)) for r, s in found), key=lambda pair: [rank.get(name, 99) for name in pair])
    only = {reference: next((s for r, s in pairs if r == reference), _FIRST) for reference, _ in pairs}
    more = {("initial", "displacement"), ("previous", "displacement")}
    return [pair for pair in pairs if pair[0] == "final" or pair[1] == only[pair[0]] or pair in more]


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds by kind and layer; `null` and intervals use the shown scale, normalised if known."""
    rows = rows.reset_index(drop=True)
    start = rows[rows["update"] == 0].set_index(["model", "kind", "layer"])["value"]
    start = start[~start.index.duplicated()]
    first = start.reindex(pd.MultiIndex.from_frame(rows[["model", "kind", "layer"]])).to_numpy(dtype=float)
    if rows["normalised"].dropna().empty:
        return means(rows, ["kind", "layer"], ("value", "null")).assign(scale="as it is")
    scaled = {name: (rows[name] - first) / (1 - first) for name in ("low", "high", "null")}
    rows = rows.assign(**scaled, value=rows["normalised"])
    return means(rows, ["kind", "layer"], ("value", "null")).assign(scale="normalised").dropna(subset="value")


def _group(course: CheckpointTables, table: pd.DataFrame, reference: str, similarity: str) -> PanelGroup:
    known = table[["value", "null"]]
    low, high = span(known, margin=0.04)
    ends = (max(low, min(float(np.nanmin(known)), -0.35)), high)
    name = _SIMILARITIES.get(similarity, similarity)
    normalised = table["scale"].iloc[0] == "normalised"
    y = amount("y", "value", f"{name}, {'share of the way' if normalised else 'as it is'}", ends, ticks=4)
    panels = [
        Panel(spec=_chart(course.axis, own[own["kind"] == kind], y), title=f"{series.label}: {label}")
        for series, own in course.each(table)
        for kind, label in _KINDS.items()
        if kind in set(own["kind"])
    ]
    where = _REFERENCES.get(reference, f"to {reference}")
    note = f"{name} {where}{', as a share of the way from the start' if normalised else ''}."
    return PanelGroup(id=f"{reference}-{similarity}", label=f"{name} {where}", note=note, scale=("", ""), panels=panels)


def _chart(axis: TimeAxis, rows: pd.DataFrame, y: Channel) -> dict[str, Any]:
    # Highlighting selects models, and a panel has only one: its lines never dim.
    return time_lines(
        axis,
        rows,
        y,
        {"color": layer_color(rows["layer"].tolist())},
        by="layer",
        height=_HEIGHT,
        beneath=_null(axis, rows, y),
        tooltip=tips("layer:O", "update:Q||,", "value:Q||.3f", "low:Q||.3f", "high:Q||.3f"),
        light=lambda opacity=1.0: Constant(opacity),
        band=0.08,
        width=1.7,
    )


def _null(axis: TimeAxis, rows: pd.DataFrame, y: Channel) -> list[Layer]:
    """The area between the lowest and the highest layer of the null model."""
    known = rows.dropna(subset="null").round({"null": 4})
    if known.empty:
        return []
    ends = {"value": ("null", "mean"), "low": ("null", "min"), "high": ("null", "max")}
    band = known.groupby(["series", "update"], as_index=False).agg(**ends)
    at, grey = {"x": axis.channel(), "y": y}, {"color": Constant("var(--control)")}
    line = draw("line", timed(band), CONTROL, at, strokeWidth=1.3)
    return [area(band, at, Constant(0.25), grey, lambda own: timed(own)), line]


def _settled(course: CheckpointTables) -> str:
    """When each model's lowest and highest layers have settled; "" if unknown."""
    times, parts = _times(course), []
    for series, own in course.each(times):
        for kind, label in _KINDS.items():
            known = own[(own["kind"] == kind) & own["time"].notna()].sort_values("layer")
            if len(known) > 1:
                ends = known.iloc[[0, -1]].itertuples()
                found = [f"layer {row.layer} by {number(round(row.time), 0)}" for row in ends]
                parts.append(f"{series.label}, {label}: {listed(found)}")
    return f"Updates after which nine tenths of the way to the end are done: {'; '.join(parts)}." if parts else ""


def _nearest(course: CheckpointTables, table: pd.DataFrame) -> str:
    first = table[table["kind"] == table["kind"].iloc[0]]
    nearest = [
        f"{series.label} layer {int(own.groupby('layer')['value'].mean().idxmax())}"
        for series, own in course.each(first)
    ]
    return f"Layer closest to its final state, averaged over all checkpoints: {listed(nearest)}."


def _times(course: CheckpointTables) -> pd.DataFrame:
    """Settling times by CKA to the final model (or another measure): geometric means over seeds, widest brackets."""
    frame = main_stack(course[CONVERGENCE_TIME.name])
    if frame.empty:
        return frame
    if "final" in set(frame["reference"]):
        frame = frame[frame["reference"] == "final"]
    one = "cka" if "cka" in set(frame["similarity"]) else frame["similarity"].iloc[0]
    frame = frame[frame["similarity"] == one].dropna(subset="time")
    logs = frame.assign(time=np.log2(frame["time"].clip(lower=1)))
    grouped = logs.groupby(["series", "kind", "layer"])
    table = grouped.agg(
        time=("time", "mean"), before=("before", "min"), after=("after", "max"), seeds=("seed", "nunique")
    )
    return table.reset_index().assign(time=lambda own: 2 ** own["time"], similarity=one)


def _when(course: CheckpointTables) -> Drawn | None:
    times = _times(course)
    if times.empty:
        return None
    name = str(times["similarity"].iloc[0])
    return Drawn(
        data=times,
        panels=[
            Panel(spec=_times_chart(course.axis, own, series), title=series.label) for series, own in course.each(times)
        ],
        answer=[_order_sentence(course, times)],
        caption=f"The last upward crossing of nine tenths of the way to the end, by {_SIMILARITIES.get(name, name)}; "
        f"{counted(int(times['seeds'].max()), 'seed')}. Layers that hardly changed have no such time.",
    )


def _order_sentence(course: CheckpointTables, times: pd.DataFrame) -> str:
    """Rank correlation of depth and time, for states and for blocks."""
    parts = []
    for series, own in course.each(times):
        stated = []
        for kind, label in _KINDS.items():
            known = own[own["kind"] == kind]
            if len(known) > 2:
                stated.append(f"{label} {number(known['layer'].corr(known['time'], method='kendall'), 2)}")
        parts += [f"{series.label} {listed(stated)}"] if stated else []
    if not parts:
        return "Too few layers settled to give an order."
    return f"Rank correlation of depth and settling time (Kendall's τ): {'; '.join(parts)}."


def _times_chart(axis: TimeAxis, times: pd.DataFrame, series: Series) -> dict[str, Any]:
    rows = times[["series", "layer", "kind", "time"]].assign(
        kind=times["kind"].map(_KINDS),
        stated=[f"{short(row.before)} to {short(row.after)}" for row in times.itertuples()],
        **{name: times[column].clip(upper=axis.last) for name, column in zip(("x", "x1", "x2"), _TIMES, strict=True)},
    )
    base = axis.placed(rows, series.key, x="x", x1="x1", x2="x2")
    order = sorted({int(layer) for layer in rows["layer"]}, reverse=True)
    y = channel("y", "layer:O", sort=order, axis={"title": "layer", "domain": False, "ticks": False, "grid": True})
    tooltip = tips("layer:O", "kind:N", "time:Q|update|,.0f", "stated:N|between checkpoints")
    layers = [axis.marker([series.key])]
    hollow = {**HOLLOW_MARK, "strokeWidth": 1.8}
    for kind, style, offset in (("states", {"filled": True}, -5), ("blocks", hollow, 5)):
        own, look = filtered(base, f"datum.kind === '{kind}'"), {"y": y, "color": series.color, "yOffset": offset}
        bar = {"strokeWidth": 2.2, "x": axis.channel("x1"), "x2": "x2:Q"}
        layers.append(draw("rule", own, look, bar, opacity=lit(0.45)))
        layers.append(draw("point", own, look, style, size=60, x=axis.channel(), opacity=lit(), tooltip=tooltip))
    return axis.finished(layers, 26 * len(order), [series.key])


CURVES = DeclaredFigure(
    name="over-training/convergence",
    id="convergence",
    question="Which layers settle first?",
    how_to_read=(
        "Across: training. Up: how close a layer is to its reference; 1 (or a displacement of 0) means equal. "
        "Pale lines are low layers, dark lines high layers.",
        "Left: states. A change in one layer reaches all layers above it, so even equal noise in all layers "
        "would make low states look settled. Right: blocks, each on the finished model's own input, where "
        "changes of lower layers do not add up. Low layers settle first only if both panels say so.",
        "The grey area is the null model, from its lowest to its highest layer: the finished weights, disturbed "
        "at random by as much as they still had to move. Above it, a layer has settled: its remaining movement "
        "hardly matters. Inside it, the layer is as close to its final state as random weights at that distance. Below "
        "it, the remaining movement matters more than random movement.",
    ),
    method=CONVERGENCE,
    tables=(CONVERGENCE_TABLE.name, CONVERGENCE_TIME.name),
    findings=("time:T-1", "time:T-2"),
    template=MEASURES_TEMPLATE,
    payload={"key": "convergence", "pairs": True},
    draw=_curves,
)
TIMES = DeclaredFigure(
    name="over-training/convergence-times",
    id="convergence-times",
    question="When has each layer settled?",
    how_to_read=(
        "One row per layer, training from left to right. Full dots: states; hollow dots: blocks on the finished "
        "model's input. The bar spans the checkpoints before and after the crossing: times are no more exact "
        "than that.",
        "If dots move to the right going up, low layers settle first. Full dots do so even under equal noise; "
        "check the hollow ones.",
    ),
    method=CONVERGENCE,
    tables=(CONVERGENCE_TIME.name,),
    findings=("time:T-1",),
    draw=_when,
)
