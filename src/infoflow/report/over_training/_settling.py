"""Which layers settle first: states and blocks against the finished model, beside what the schedule alone gives."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Method, Panel, PanelGroup, ReportFigure
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import amount, lit, tips
from ..forms._lines import area
from ..forms._over_time import layer_color, layer_shades, time_lines
from ..forms._time_axis import TimeAxis, short, timed
from ._course import CheckpointTables, band_note, checkpoints_note, means
from ._layer_measures import main_stack
from ._layers import MEASURES_TEMPLATE

CONVERGENCE = Method(
    id="convergence",
    title="Convergence",
    text="""
    States of layer <i>l</i> after update <i>t</i> against those of a reference, on the same tokens. Normalised:
    <i>c</i>(<i>t</i>) = (<i>s</i>(<i>t</i>) − <i>s</i>(0)) / (1 − <i>s</i>(0)), absent where 1 − <i>s</i>(0) &lt; .05;
    a layer has settled at the last upward crossing of .9, linear in log<sub>2</sub> <i>t</i>. <i>States</i> carry what
    all lower layers do; <i>blocks</i> are the update that a block makes of the finished model's own input, against its
    finished update, so that depth does not add up. Null model: the finished weights with random directions added, each
    tensor as far away as it was at that update. CKA and PWCCA do not see a rotation; displacement
    (‖<i>X<sub>t</sub></i> − <i>X<sub>r</sub></i>‖ / ‖<i>X<sub>r</sub></i> − mean‖) does.
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
    "other-seed": "to another seed's end",
    "other-objective": "to another objective's end",
    "previous": "to the step before",
    "initial": "to the start",
}
_FIRST = "cka"  # of other references than the end
_HEIGHT = 190


def settling_figures(course: CheckpointTables) -> list[ReportFigure]:
    """The curves of convergence, and when each layer settled."""
    return [figure for figure in (_curves_figure(course), _times_figure(course)) if figure is not None]


def _curves_figure(course: CheckpointTables) -> ReportFigure | None:
    frame = main_stack(course["convergence"])
    if frame.empty:
        return None
    groups, tables = [], []
    for reference, similarity in _choices(frame):
        rows = frame[(frame["reference"] == reference) & (frame["similarity"] == similarity)]
        table = _table(rows)
        if len(set(table["update"])) < 2:
            continue
        groups.append(_group(course, table, reference, similarity))
        tables.append(table.assign(reference=reference, similarity=similarity))
    if not groups:
        return None
    data = pd.concat(tables, ignore_index=True)
    layers = sorted({int(layer) for layer in data["layer"]})
    legend = [
        {"label": f"layer {each}", "color": shade} for each, shade in zip(layers, layer_shades(layers), strict=True)
    ]
    null = [{"label": "null model", "color": "var(--control)"}] if len(data["null"].dropna()) else []
    return ReportFigure(
        id="convergence",
        question="Which layers settle first?",
        answer=_sentences(course, tables[0]),
        panels=groups[0].panels,
        caption=f"{checkpoints_note(course, data)} {band_note(data)}",
        how_to_read=[
            "Across: training. Up: how near a layer is to what it is compared with; 1 (or a displacement of 0) is "
            "equal. Pale lines are low layers, dark ones high layers.",
            "Left: states. Equal noise in all layers would already make low states look settled, since whatever a "
            "layer changes reaches all layers above it. Right: blocks, each on the finished model's own input, "
            "where depth "
            "does not add up. That low layers settle first is shown only where both say so.",
            "The grey band is the null model, from its lowest to its highest layer: the finished weights, disturbed at "
            "random by as much as they still had to move. Above it a layer has settled: what is left to move hardly "
            "matters. In it, it is as near to its end as so little movement makes anything. Below it, what is left "
            "matters more than chance.",
        ],
        method=CONVERGENCE,
        data=data,
        tables=("convergence", "convergence_time"),
        findings=("time:T-1", "time:T-2"),
        template=MEASURES_TEMPLATE,
        payload={"metrics": groups, "legend": legend + null, "key": "convergence", "pairs": True},
    )


def _choices(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """References and similarities, the most telling first; of other references than the end, one or two."""
    found = set(frame[["reference", "similarity"]].itertuples(index=False, name=None))
    rank = {name: place for place, name in enumerate([*_REFERENCES, *_SIMILARITIES])}
    pairs = sorted(((str(r), str(s)) for r, s in found), key=lambda pair: [rank.get(name, 99) for name in pair])
    only = {reference: next((s for r, s in pairs if r == reference), _FIRST) for reference, _ in pairs}
    more = {("initial", "displacement"), ("previous", "displacement")}
    return [pair for pair in pairs if pair[0] == "final" or pair[1] == only[pair[0]] or pair in more]


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds by kind and layer; `null` and intervals on the scale that is shown: normalised where known."""
    rows = rows.reset_index(drop=True)
    for column in ("normalised", "null"):
        rows = rows if column in rows else rows.assign(**{column: np.nan})
    start = rows[rows["update"] == 0].set_index(["model", "kind", "layer"])["value"]
    start = start[~start.index.duplicated()]
    first = start.reindex(pd.MultiIndex.from_frame(rows[["model", "kind", "layer"]])).to_numpy(dtype=float)
    if rows["normalised"].dropna().empty:
        return means(rows, ["kind", "layer"], ("value", "null")).assign(scale="as it is")
    width = 1 - first
    scaled = {
        name: (rows[name].to_numpy(dtype=float) - first) / width for name in ("low", "high", "null") if name in rows
    }
    rows = rows.assign(**scaled, value=rows["normalised"])
    return means(rows, ["kind", "layer"], ("value", "null")).assign(scale="normalised").dropna(subset="value")


def _group(course: CheckpointTables, table: pd.DataFrame, reference: str, similarity: str) -> PanelGroup:
    known = table[["value", "null"]].to_numpy(dtype=float)
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    margin = 0.04 * (high - low) or 0.1
    span = (max(low - margin, min(low, -0.35)), high + margin)
    name = _SIMILARITIES.get(similarity, similarity)
    normalised = table["scale"].iloc[0] == "normalised"
    title = f"{name}, {'share of the way' if normalised else 'as it is'}"
    panels = [
        Panel(spec=_chart(course.axis, own[own["kind"] == kind], span, title), title=f"{series.label}: {label}")
        for series, own in course.each(table)
        for kind, label in _KINDS.items()
        if kind in set(own["kind"])
    ]
    where = _REFERENCES.get(reference, f"to {reference}")
    note = f"{name} {where}{', as a share of the way from the start' if normalised else ''}."
    return PanelGroup(id=f"{reference}-{similarity}", label=f"{name} {where}", note=note, scale=("", ""), panels=panels)


def _chart(axis: TimeAxis, rows: pd.DataFrame, span: tuple[float, float], title: str) -> dict[str, Any]:
    layers = sorted({int(layer) for layer in rows["layer"]})
    digits = rows.round({"value": 4, "low": 4, "high": 4, "null": 4})
    y = amount("value", title, span, ticks=4)
    # Highlighting is about models, and a panel has one: its lines never dim.
    return time_lines(
        axis,
        digits[["series", "layer", "update", "value", "low", "high", "seeds"]],
        y,
        {"color": layer_color(layers), "detail": "layer:O"},
        height=_HEIGHT,
        beneath=_null(axis, digits, y),
        tooltip=tips("layer:O", "update:Q||,", "value:Q||.3f", "low:Q||.3f", "high:Q||.3f"),
        light=lambda opacity=1.0: alt.OpacityValue(opacity),
        band=0.08,
        width=1.7,
    )


def _null(axis: TimeAxis, rows: pd.DataFrame, y: dict[str, Any]) -> list[alt.Chart]:
    """From the lowest to the highest layer of the null model."""
    known = rows.dropna(subset="null")
    if known.empty:
        return []
    band = known.groupby(["series", "update"], as_index=False).agg(
        value=("null", "mean"), low=("null", "min"), high=("null", "max")
    )
    at = {"x": axis.channel(), "y": alt.Y(**y)}
    look = {"color": alt.ColorValue("var(--control)")}
    edge = timed(alt.Chart(band)).mark_line(color="var(--control)", strokeDash=[4, 3], strokeWidth=1.3)
    return [area(band, at, alt.OpacityValue(0.25), look, lambda own: timed(alt.Chart(own))), edge.encode(**at)]


def _sentences(course: CheckpointTables, table: pd.DataFrame) -> list[str]:
    times = _times(course)
    if times.empty:
        return [_area_sentence(course.models, table)]
    parts = []
    for series, own in course.each(times):
        for kind, label in _KINDS.items():
            known = own[(own["kind"] == kind) & own["time"].notna()].sort_values("layer")
            if len(known) > 1:
                ends = known.iloc[[0, -1]]
                found = [f"layer {row.layer} by {number(round(row.time), 0)}" for row in ends.itertuples()]
                parts.append(f"{series.label}, {label}: {listed(found)}")
    told = f"Nine tenths of the way to the end are gone after these updates. {'; '.join(parts)}." if parts else ""
    return [told] if told else [_area_sentence(course.models, table)]


def _area_sentence(models: ShownModels, table: pd.DataFrame) -> str:
    parts = []
    for series in models.present(table):
        own = table[(table["series"] == series.key) & (table["kind"] == table["kind"].iloc[0])]
        average = own.groupby("layer")["value"].mean()
        parts.append(f"{series.label} layer {int(average.idxmax())}")
    return f"Over all checkpoints nearest to its end is, in {listed(parts)}."


def _times(course: CheckpointTables) -> pd.DataFrame:
    """When layers settled by CKA to the end (or what there is); geometric means over seeds, their widest bracket."""
    frame = main_stack(course["convergence_time"])
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


def _times_figure(course: CheckpointTables) -> ReportFigure | None:
    times = _times(course)
    if times.empty:
        return None
    name, seeds = str(times["similarity"].iloc[0]), int(times["seeds"].max())
    panels = [
        Panel(spec=_times_chart(course.axis, own, series), title=series.label) for series, own in course.each(times)
    ]
    return ReportFigure(
        id="convergence-times",
        question="When has each layer settled?",
        answer=[_order_sentence(course, times)],
        panels=panels,
        caption=f"The last upward crossing of nine tenths of the way to the end, by {_SIMILARITIES.get(name, name)}; "
        f"{seeds} seed{'s' if seeds > 1 else ''}. Layers that hardly had to move have none.",
        how_to_read=[
            "A row per layer, training from left to right. Full dots: states; hollow dots: blocks on the finished "
            "model's input. The bar goes from the checkpoint before the crossing to the one behind it: no time is more "
            "exact than that.",
            "Dots that lean to the right going up mean that low layers settle first. Full dots lean even under equal "
            "noise; look whether the hollow ones do.",
        ],
        method=CONVERGENCE,
        data=times,
        tables=("convergence_time",),
        findings=("time:T-1",),
    )


def _order_sentence(course: CheckpointTables, times: pd.DataFrame) -> str:
    """Rank correlation of depth and time, of states and of blocks."""
    parts = []
    for series, own in course.each(times):
        told = []
        for kind, label in _KINDS.items():
            known = own[own["kind"] == kind]
            if len(known) > 2:
                told.append(f"{label} {number(known['layer'].corr(known['time'], method='kendall'), 2)}")
        parts += [f"{series.label} {listed(told)}"] if told else []
    if not parts:
        return "There are too few layers that settled to tell an order."
    return f"Does time grow with depth (Kendall's τ, 1: always)? {'; '.join(parts)}."


def _times_chart(axis: TimeAxis, times: pd.DataFrame, series: Series) -> dict[str, Any]:
    rows = times.assign(shift=np.where(times["kind"] == "state", -4, 4))
    for name in ("time", "before", "after"):
        rows[f"{name}_at"] = axis.places(series.key, rows[name].clip(upper=axis.last)).tolist()
    rows = rows.assign(kind=rows["kind"].map(lambda kind: _KINDS.get(str(kind), str(kind))))
    rows["told"] = [f"{short(row.before)} to {short(row.after)}" for row in rows.itertuples()]
    base = alt.Chart(rows[["series", "layer", "kind", "time", "time_at", "before_at", "after_at", "shift", "told"]])
    base = base.transform_calculate(
        x="datum.time_at[clock]", x1="datum.before_at[clock]", x2="datum.after_at[clock]", side="datum.shift > 0"
    )
    order = sorted({int(layer) for layer in rows["layer"]}, reverse=True)
    height = 26 * len(order)
    layers = []
    for kind, filled, offset in (("states", True, -5), ("blocks", False, 5)):
        own = base.transform_filter(f"datum.kind === '{kind}'")
        y = alt.Y("layer:O", sort=order, axis=alt.Axis(title="layer", domain=False, ticks=False, grid=True))
        rule = own.mark_rule(strokeWidth=2.2, color=series.color, yOffset=offset)
        place = {"x": axis.channel(field="x1"), "x2": alt.X2("x2:Q"), "y": y}
        layers.append(rule.encode(**place, opacity=lit(0.45)))
        look = {"filled": True} if filled else {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.8}
        mark = own.mark_point(size=60, color=series.color, opacity=1, yOffset=offset, **look)
        tooltip = tips("layer:O", "kind:N", "time:Q|update|,.0f", "told:N|between checkpoints")
        layers.append(mark.encode(x=axis.channel(), y=y, opacity=lit(), tooltip=tooltip))
    return axis.finished([axis.marker([series.key]), *layers], height, [series.key])
