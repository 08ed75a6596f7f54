"""When each layer becomes what it is: layers by updates, a measure at a time."""

import re

import pandas as pd

from .._figure import Panel, PanelGroup, ReportFigure
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..forms._chart import color_of
from ..forms._over_time import layer_cells, layer_profile
from ._course import CheckpointTables, checkpoints_note
from ._layer_measures import LayerMeasure, layer_measures

MEASURES_TEMPLATE = "measures_over_training.html.jinja"


def layers_figure(course: CheckpointTables) -> ReportFigure | None:
    """A panel for each model, and all of them by layer at one checkpoint; None where no table tells."""
    measures = layer_measures(course)
    if not measures:
        return None
    first = measures[0]
    data = pd.concat([measure.rows.assign(measure=measure.label, unit=measure.unit) for measure in measures])
    seeds = int(data["seeds"].max())
    groups = [_group(course, measure) for measure in measures]
    return ReportFigure(
        id="layers-over-training",
        question="When does each layer become what it is?",
        answer=[_sentence(course.models, first)],
        panels=groups[0].panels,
        caption=f"{checkpoints_note(course, data)} {f'Means over {seeds} seeds.' if seeds > 1 else 'One seed.'} All "
        "panels and all steps of a measure have one scale.",
        how_to_read=[
            "Layers upwards, training from left to right: each column is a checkpoint, from halfway to the one before "
            "to halfway to the next. The stronger the colour, the higher the value. The first column, left of the "
            "break, is the model before its first update: what is there needs no training.",
            "The frame is the checkpoint that the slider of this section has come to; the last panel shows its values "
            "by layer, dotted lines those of the finished model.",
            "Columns are as wide as the checkpoints are apart. On the axis of updates early changes are easy to see; "
            "on that of the learning rate a change that the schedule alone brings about is a straight fade.",
        ],
        method=first.method,
        data=data,
        tables=tuple(f"{name}_over_training" for name in dict.fromkeys(measure.table for measure in measures)),
        template=MEASURES_TEMPLATE,
        payload={"metrics": groups, "key": "layers"},
    )


def _group(course: CheckpointTables, measure: LayerMeasure) -> PanelGroup:
    rows = measure.rows
    ends = (float(rows["value"].min()), float(rows["value"].max()))
    title = f"{measure.label}{f' ({measure.unit})' if measure.unit else ''}"
    unit = f" {measure.unit}" if measure.unit else ""
    panels = [
        Panel(spec=layer_cells(course.axis, own, ends, measure.unit), title=series.label)
        for series, own in course.each(rows)
    ]
    profile = layer_profile(course.axis, rows, ends, title, color_of(course.series(rows)))
    return PanelGroup(
        id=measure.id,
        label=measure.label,
        note=measure.asks,
        scale=(f"{number(ends[0])}", f"{number(ends[1])}{unit}"),
        panels=[*panels, Panel(spec=profile, title="By layer, at the chosen step")],
    )


def _sentence(models: ShownModels, measure: LayerMeasure) -> str:
    """Of each model the layer that changes most, and when half of that has happened."""
    parts = []
    for series in models.present(measure.rows):
        own = measure.rows[measure.rows["series"] == series.key]
        grid = own.pivot_table(index="layer", columns="update", values="value").dropna(axis=1, how="all")
        start, end = grid.iloc[:, 0], grid.iloc[:, -1]
        layer = int((end - start).abs().idxmax())
        curve = grid.loc[layer].dropna()
        unit = f" {measure.unit}" if measure.unit else ""
        ends = f"from {number(curve.iloc[0])} to {number(curve.iloc[-1])}{unit}"
        parts.append(f"in {series.label} layer {layer} ({ends}, half of it by update {half_way(curve):,})")
    name = f"{measure.label[:1].upper()}{measure.label[1:]}"
    return f"{name} changes most over training {listed(parts)}."


def half_way(curve: pd.Series) -> int:
    """The first checkpoint from which on a curve (by update) stays past the middle between its ends."""
    start, end = float(curve.iloc[0]), float(curve.iloc[-1])
    past = (curve - (start + end) / 2) * (end - start) >= 0
    before = past.index[~past.to_numpy(dtype=bool)]
    return int(past.index[past.index.get_loc(before[-1]) + 1]) if len(before) else int(past.index[0])


def slug(name: str) -> str:
    """A name for addresses and files: letters and digits, joined by dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))
