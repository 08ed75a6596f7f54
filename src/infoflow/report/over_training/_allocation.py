"""What each layer's weights did for the loss, on the axis of everything else over training."""

from typing import Any

import altair as alt
import pandas as pd

from infoflow.over_training import select_steps

from .._figure import Panel, PanelGroup, ReportFigure
from .._numbers import listed, number
from ..forms._chart import CONTROL, amount, lit, tips
from ..forms._lines import folded
from ..forms._over_time import layer_color, layer_shades
from ..training._rows import LOSS_CHANGE, ModelStack, on_train, parts_of
from ._course import CheckpointTables
from ._layers import MEASURES_TEMPLATE

_HEIGHT = 200
_OUTSIDE = -1  # layer
_MOST = 30  # windows' ends that are drawn


def allocation_figure(course: CheckpointTables) -> ReportFigure | None:
    """Loss removed by each layer until every update; None where no loss change was recorded."""
    frame = course["allocation_steps"]
    if frame.empty:
        return None
    rows = on_train(frame)
    parts = parts_of(rows, course.models)
    tables = {part: _removed(rows, part) for part in parts}
    if not parts:
        return None
    data = pd.concat([table.assign(series=part.series, stack=part.stack) for part, table in tables.items()])
    low, high = float(data["value"].min()), float(data["value"].max())
    margin = 0.05 * (high - low) or 0.1
    panels = [
        Panel(spec=_chart(course, part, table, (low - margin, high + margin)), title=part.label)
        for part, table in tables.items()
    ]
    layers = sorted({int(layer) for layer in data["layer"] if layer != _OUTSIDE})
    legend = [
        {"label": f"layer {each}", "color": shade} for each, shade in zip(layers, layer_shades(layers), strict=True)
    ]
    outside = [{"label": "outside the layers", "color": "var(--control)"}]
    groups = [PanelGroup(id="allocation", label="loss removed", note="", scale=("", ""), panels=panels)]
    return ReportFigure(
        id="allocation-over-training",
        question="When does each layer lower the loss?",
        answer=[_sentence(tables)],
        panels=panels,
        caption=f"Means over {int(rows['seed'].nunique())} seeds; sums until {data['update'].nunique() - 1} updates.",
        how_to_read=[
            "Up: what the weights of a layer have taken off the loss on training sentences until then; a line that "
            "falls raises it. Pale lines are low layers, dark ones high layers, dashed grey what stands outside the "
            "layers (embeddings, output). All lines of a model together are the fall of its loss.",
            "A layer that still removes loss after its states have settled (see convergence) goes on with what it has; "
            "it need not become something else.",
        ],
        method=LOSS_CHANGE,
        data=data,
        tables=("allocation_steps",),
        template=MEASURES_TEMPLATE,
        payload={"metrics": groups, "legend": legend + outside, "key": "allocation"},
    )


def _removed(rows: pd.DataFrame, part: ModelStack) -> pd.DataFrame:
    """layer, update, value: the sum until then of what was taken off, mean over seeds; 0 at the start."""
    own = rows[(rows["series"] == part.series) & ((rows["stack"] == part.stack) | (rows["layer"] == _OUTSIDE))]
    sums = own.groupby(["seed", "layer", "end"], as_index=False)["value"].sum()
    ends = sums.groupby(["layer", "end"], as_index=False)["value"].mean().sort_values("end")
    ends = ends.assign(value=-ends.groupby("layer")["value"].cumsum()).rename(columns={"end": "update"})
    ends = ends[ends["update"].isin(_thinned(ends["update"]))]
    start = ends.drop_duplicates("layer").assign(update=0, value=0.0)
    return pd.concat([start, ends], ignore_index=True).sort_values(["layer", "update"], ignore_index=True)


def _thinned(updates: pd.Series) -> list[int]:
    """Some of the ends of windows, evenly in log time as the axis is, where there are many."""
    return select_steps(sorted({int(update) for update in updates}), _MOST)


def _chart(
    course: CheckpointTables, part: ModelStack, table: pd.DataFrame, span: tuple[float, float]
) -> dict[str, Any]:
    axis, updates = course.axis, sorted(set(table["update"]))
    spots = dict(zip(map(str, updates), axis.places(part.series, updates).tolist(), strict=True))
    at = {"x": axis.channel(), "y": alt.Y(**amount("value", "nats removed", list(span)))}
    tooltip = tips("layer:O", "update:Q||,", "value:Q|nats removed|.3f")
    layers: list[alt.Chart] = [axis.marker([part.series])]
    for rows, look in (
        (table[table["layer"] == _OUTSIDE], CONTROL),
        (table[table["layer"] != _OUTSIDE], {"strokeWidth": 1.8}),
    ):
        if rows.empty:
            continue
        base = folded(rows.round({"value": 4}), "layer").transform_calculate(x="spots[datum.update][clock]")
        color = {} if look is CONTROL else {"color": layer_color(rows["layer"].tolist())}
        layers.append(base.mark_line(**look).encode(**at, **color, detail=alt.Detail("layer:O"), opacity=lit()))
        layers.append(base.mark_point(filled=True, size=90, opacity=0).encode(**at, tooltip=tooltip))
    return axis.finished(layers, _HEIGHT, [part.series], spots=spots)


def _sentence(tables: dict[ModelStack, pd.DataFrame]) -> str:
    """Of each model the update at which half of the layers' removal was done, of the layer that did most."""
    told = []
    for part, table in tables.items():
        inside = table[table["layer"] != _OUTSIDE]
        ends = inside[inside["update"] == inside["update"].max()].set_index("layer")["value"]
        most = int(ends.idxmax())
        own = inside[inside["layer"] == most]
        half = int(own.loc[own["value"] >= ends[most] / 2, "update"].min())
        told.append(f"{part.label} layer {most} ({number(float(ends[most]))} nats, half of them by update {half:,})")
    return f"Of all layers most loss is removed by: {listed(told)}."
