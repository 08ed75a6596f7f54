"""How the loss fell, with the learning rate and the checkpoints below, and each layer's contribution."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._curves import band_words, over_seeds, seed_bands
from infoflow.report._figure import DeclaredFigure, Drawn, Panel, PanelGroup
from infoflow.report._in_words import ends_words, half_by, listed, number
from infoflow.report.forms._chart import CONTROL, HEIGHT, NAME, amount, lit, spread, tips, with_field
from infoflow.report.forms._lines import area, folded, looks_of
from infoflow.report.forms._marks import Channel, Constant, Layer, calculated, channel, draw, span
from infoflow.report.forms._over_time import HOLLOW_MARK, TOUCH, TimeAxis, layer_color, layer_legend, timed
from infoflow.results import LEARNING_CURVES, TASK_SCORES
from infoflow.subjects.allocation.figures._components import LOSS_CHANGE, ModelStack, on_train, parts_of
from infoflow.subjects.allocation.measures import ALLOCATION_STEPS
from infoflow.training import select_steps

from ._course import CheckpointTables, means
from ._layers import MEASURES_TEMPLATE
from ._phases import PHASES

_STRIP = 34  # pixels of learning rate and checkpoints below the loss
_NOTE = {"align": "left", "baseline": "bottom", "fontSize": 10.5, "fontStyle": "italic", "color": "var(--soft)"}
_OUTSIDE = -1  # layer
_MOST = 30  # number of window ends that are drawn


def _loss(course: CheckpointTables) -> Drawn | None:
    frame = course[LEARNING_CURVES.name]
    if frame.empty or "step" not in frame.columns:
        return None
    table = _curves(frame, course.axis)
    if table.empty:
        return None
    parts = []
    for series, own in course.each(table):
        curve = own.set_index("update")["value"]
        parts.append(f"{series.label} {ends_words(curve, 'nats')} (half of the fall by update {half_by(curve):,})")
    return Drawn(
        data=table,
        panels=[Panel(spec=_loss_chart(course, table))],
        answer=[f"Training loss fell in {listed(parts)}."],
        caption=f"Training loss; each point is the mean since the previous one. {len(course.moments)} checkpoints. "
        f"{band_words(int(table['seeds'].max()), over='')}.",
        payload={"series": [one.key for one in course.series(table)]},
    )


def _curves(frame: pd.DataFrame, axis: TimeAxis) -> pd.DataFrame:
    """Mean over seeds and its interval at each step of a line, from the first checkpoint on."""
    frame = frame[frame["step"] >= axis.first].assign(point=lambda own: own.groupby(["series", "seed"]).cumcount())
    keys = ["series", "point"]
    updates = frame.groupby(keys, sort=False)["step"].mean().rename("update").reset_index()
    table = updates.merge(seed_bands(frame, keys, positive=True), on=keys)
    return table.sort_values(["series", "update"], ignore_index=True).drop(columns="point")


def _loss_chart(course: CheckpointTables, table: pd.DataFrame) -> dict[str, Any]:
    axis, series = course.axis.with_room(0.16), course.series(table)
    held_out, keys = _held_out(course), [one.key for one in series]
    rows = pd.concat([own for _, own in course.each(table)]).round({"value": 4, "low": 4, "high": 4})
    values = np.concatenate([frame[["low", "high"]].to_numpy(dtype=float) for frame in (rows, held_out)])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    floor = low - (high - low) * (_STRIP + 12) / (HEIGHT - _STRIP - 12)
    ticks = [value for value in np.linspace(np.floor(low), np.ceil(high), 6).round(1).tolist() if value >= low - 0.3]
    y = amount("y", "value", "training loss (nats per token)", [floor, high + 0.03 * (high - low)], values=ticks)
    at, look = {"x": axis.channel(), "y": y}, looks_of(series)
    dashed = {"color": look["color"], "strokeDash": look["strokeDash"]}
    base, known = axis.placed(rows, x="update"), bool(rows["low"].notna().any())
    ends = rows.loc[rows.groupby("series")["update"].idxmax()]
    heights = spread(list(ends["value"]), 13 / HEIGHT * (high - floor), high)
    ends = ends.assign(height=heights, name=ends["series"].map({one.key: one.label for one in series}))
    name = {"align": "left", "dx": 6, "text": "name:N", "color": look["color"], "opacity": lit(1.0, 0.25)}
    tooltip = tips("series:N|model", "update:Q||,.0f", "value:Q|loss|.3f")
    layers = [
        axis.marker(keys),
        *([area(rows, at, lit(0.16), look, lambda own: axis.placed(own, x="update"))] if known else []),
        draw("line", base, at, dashed, strokeWidth=2, opacity=lit()),
        draw("point", base, at, TOUCH, size=160, tooltip=tooltip),
        draw("text", axis.placed(ends, x="update"), NAME, name, x=at["x"], y=with_field(y, "height")),
        *_held_out_marks(held_out, at, look["color"]),
        *_strip(course, axis, at["x"]),
    ]
    return axis.finished(layers, HEIGHT, keys)


def _held_out(course: CheckpointTables) -> pd.DataFrame:
    """The loss on held-out sentences at every checkpoint, and the loss of unigram frequencies on them."""
    frame = course[TASK_SCORES.name]
    if frame.empty or "loss" not in set(frame["metric"]):
        return pd.DataFrame(columns=["series", "update", "value", "low", "high", "baseline"])
    frame = frame[frame["metric"] == "loss"]
    split = "test" if "test" in set(frame["split"]) else frame["split"].iloc[0]
    table = means(frame[frame["split"] == split], [], ("value", "baseline"))
    table = table[table["update"] >= course.axis.first].drop(columns="seeds")
    return table.assign(low=table["value"], high=table["value"])  # only drawn values count for the axis


def _held_out_marks(table: pd.DataFrame, at: dict[str, Any], color: Channel) -> list[Layer]:
    if table.empty:
        return []
    unigram = table.groupby("series", as_index=False)["baseline"].mean().round(4)
    y, words = with_field(at["y"], "baseline"), {"x": Constant(4), "text": Constant("unigram frequencies")}
    hollow = {**HOLLOW_MARK, "size": 30, "strokeWidth": 1.4}
    tooltip = tips("series:N|model", "update:Q||,", "value:Q|held out|.3f")
    marks = timed(table[["series", "update", "value"]].round(4))
    return [
        draw("text", table.nlargest(1, "baseline")[["baseline"]].round(4), _NOTE, words, dy=-2, y=y),
        draw("rule", unigram, CONTROL, y=y, opacity=lit(0.8)),
        draw("point", marks, hollow, at, color=color, opacity=lit(), tooltip=tooltip),
    ]


def _strip(course: CheckpointTables, axis: TimeAxis, x: Channel) -> list[Layer]:
    """The learning rate between checkpoints, and a tick for each checkpoint."""
    clocks = course.clocks[["series", "update", "lr_share"]]
    ticks = {"color": "var(--soft)", "strokeWidth": 1, "y": Constant(HEIGHT - 7), "y2": Constant(HEIGHT)}
    stated = tips("update:Q|checkpoint|,")
    layers = [draw("rule", timed(clocks[["series", "update"]]), ticks, x=x, tooltip=stated)]
    if "lr_share" in axis.names:
        rates = pd.concat([_rates(own, axis.first) for _, own in clocks.groupby("series")], ignore_index=True)
        base = calculated(axis.placed(rates, x="middle"), height=f"{HEIGHT - 9} - {_STRIP - 9} * datum.rate")
        y = channel("y", "height:Q", scale=None, axis=None)
        layers.append(draw("line", base, color="var(--control)", strokeWidth=1.2, x=x, y=y, detail="series:N"))
        words = pd.DataFrame([{"text": "learning rate"}])
        layers.append(draw("text", words, _NOTE, x=Constant(4), y=Constant(HEIGHT - _STRIP + 2), text="text:N"))
    return layers


def _rates(clocks: pd.DataFrame, first: int) -> pd.DataFrame:
    """Mean learning rate between checkpoints, as a share of the maximum, in the middle of each interval."""
    clocks = clocks.sort_values("update")
    updates, shares = clocks["update"].to_numpy(dtype=float), clocks["lr_share"].to_numpy(dtype=float)
    rate = np.diff(shares) / np.maximum(np.diff(updates), 1)
    middle = np.maximum((updates[1:] + updates[:-1]) / 2, first)
    series = clocks["series"].iloc[0]
    return pd.DataFrame({"series": series, "rate": np.round(rate / (rate.max() or 1.0), 3), "middle": middle})


def _allocation(course: CheckpointTables) -> Drawn | None:
    frame = course[ALLOCATION_STEPS.name]
    rows = frame if frame.empty else on_train(frame)
    tables = {part: _removed(rows, part) for part in (parts_of(rows, course.models) if len(rows) else ())}
    if not tables:
        return None
    data = pd.concat([table.assign(series=part.series, stack=part.stack) for part, table in tables.items()])
    ends = span(data["value"])
    panels = [Panel(spec=_allocation_chart(course, part, own, ends), title=part.label) for part, own in tables.items()]
    inside = data.loc[data["layer"] != _OUTSIDE, "layer"]
    legend = [*layer_legend(inside), {"label": "outside the layers", "color": "var(--control)"}]
    groups = [PanelGroup(id="allocation", label="loss removed", note="", scale=("", ""), panels=panels)]
    return Drawn(
        data=data,
        panels=panels,
        answer=[f"Layers that lower the loss most: {listed([_most(*each) for each in tables.items()])}."],
        caption=f"{over_seeds(int(rows['seed'].nunique()))}; cumulative sums at {data['update'].nunique() - 1} "
        "updates.",
        payload={"metrics": groups, "legend": legend},
    )


def _removed(rows: pd.DataFrame, part: ModelStack) -> pd.DataFrame:
    """layer, update, value: cumulative loss removed, mean over seeds; 0 at the start."""
    own = rows[(rows["series"] == part.series) & ((rows["stack"] == part.stack) | (rows["layer"] == _OUTSIDE))]
    sums = own.groupby(["seed", "layer", "end"], as_index=False)["value"].sum()
    ends = sums.groupby(["layer", "end"], as_index=False)["value"].mean().sort_values("end")
    ends = ends.assign(value=-ends.groupby("layer")["value"].cumsum()).rename(columns={"end": "update"})
    # Thin out many points, evenly in log time like the axis.
    ends = ends[ends["update"].isin(select_steps(sorted({int(update) for update in ends["update"]}), _MOST))]
    start = ends.drop_duplicates("layer").assign(update=0, value=0.0)
    return pd.concat([start, ends], ignore_index=True).sort_values(["layer", "update"], ignore_index=True)


def _allocation_chart(
    course: CheckpointTables, part: ModelStack, table: pd.DataFrame, ends: tuple[float, float]
) -> dict[str, Any]:
    axis, updates = course.axis, sorted(set(table["update"]))
    spots = dict(zip(map(str, updates), axis.places(part.series, updates).tolist(), strict=True))
    at = {"x": axis.channel(), "y": amount("y", "value", "nats removed", ends)}
    tooltip = tips("layer:O", "update:Q||,", "value:Q|nats removed|.3f")
    outside = table["layer"] == _OUTSIDE
    colored = {"strokeWidth": 1.8, "color": layer_color(table.loc[~outside, "layer"].tolist())}
    layers: list[Layer] = [axis.marker([part.series])]
    for rows, look in ((table[outside], CONTROL), (table[~outside], colored)):
        if len(rows):
            base = calculated(folded(rows.round({"value": 4}), "layer"), x="spots[datum.update][clock]")
            layers.append(draw("line", base, at, look, detail="layer:O", opacity=lit()))
            layers.append(draw("point", base, at, TOUCH, size=90, tooltip=tooltip))
    return axis.finished(layers, 200, [part.series], spots=spots)


def _most(part: ModelStack, table: pd.DataFrame) -> str:
    """The layer with the largest contribution, and the update by which half of it was made."""
    curves = table[table["layer"] != _OUTSIDE].pivot_table(index="update", columns="layer", values="value")
    most = curves.iloc[-1].idxmax()
    curve = curves[most].dropna()
    return f"{part.label} layer {most} ({number(curve.iloc[-1])} nats, half by update {half_by(curve):,})"


LOSS = DeclaredFigure(
    name="over-training/loss",
    id="loss-over-training",
    question="How did the loss fall, and which checkpoints were measured?",
    how_to_read=(
        "Across: training. Up: the training loss, with dropout and the objective's own noise. Below: the "
        "learning rate (grey, where the checkpoints record it) and a tick for every measured checkpoint. No time "
        "in this section is more exact than the distance between two ticks.",
        "Hollow marks: the loss on held-out sentences at each checkpoint; dashed grey: the loss of unigram "
        "frequencies. Losses of different objectives cannot be compared.",
    ),
    method=PHASES,
    tables=(LEARNING_CURVES.name, TASK_SCORES.at_checkpoints),
    draw=_loss,
)
ALLOCATION = DeclaredFigure(
    name="over-training/allocation",
    id="allocation-over-training",
    question="When does each layer lower the loss?",
    how_to_read=(
        "Up: how much the weights of a layer have lowered the loss on training sentences so far; where a line "
        "falls, the layer raises the loss. Pale lines are low layers, dark lines high layers, dashed grey the "
        "parts outside the layers (embeddings, output). The lines of a model add up to the fall of its loss.",
        "A layer may still lower the loss after its states have settled (see convergence): it then refines what "
        "it already does.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_STEPS.name,),
    template=MEASURES_TEMPLATE,
    payload={"key": "allocation"},
    draw=_allocation,
)
