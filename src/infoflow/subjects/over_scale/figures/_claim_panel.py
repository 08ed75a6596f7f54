"""One claim over scale: its effect by tokens, with its threshold and published value."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report.forms._chart import CONTROL, amount, by_key, finished, spread, tips, with_field
from infoflow.report.forms._marks import Channel, Layer, channel, draw
from infoflow.report.forms._over_time import HOLLOW_MARK
from infoflow.report.forms._time_axis import short
from infoflow.results import END

from ..claims._scale_slope import scale_groups
from ._rows import DASHES, SHAPES, Grid

HEIGHT = 170
_ROOM = 1.6  # factor of the axis after the last run, for the name of its width
_NAME = {"align": "left", "dx": 7, "fontSize": 10, "fontWeight": "bold"}
_LINE_NAME = {"align": "left", "fontSize": 9.5, "color": "var(--soft)"}
_LINE = 12  # pixels between names
_APART = 0.025  # share of the axis between marks of two widths at the same tokens
_ABOVE, _BELOW = {"baseline": "bottom", "dy": -2}, {"baseline": "top", "dy": 3}


def claim_panel(rows: pd.DataFrame, grid: Grid) -> dict[str, Any]:
    """The chart of one claim's rows (see `tested_rows`)."""
    ends = _ends(rows)
    columns = ["run", "corpus", "width", "tokens", "effect", "low", "high", "seeds", "verdict", "update", "line"]
    shown = rows[columns].assign(
        width=rows["width"].astype(str),
        low=rows["low"].clip(*ends),
        high=rows["high"].clip(*ends),
        told=rows["verdict"] + rows["seeds"].map(lambda seeds: f", {seeds} seed{'s' if seeds > 1 else ''}"),
    )
    runs, checkpoints = shown[shown["update"] == END], shown[shown["update"] != END]
    y_title = str(rows["unit"].iloc[0]) or None
    at = {"x": _tokens(grid), "y": amount("y", "effect", y_title, ends, ticks=4)}
    look = {
        "color": by_key("color", "width", [str(width) for width in grid.widths], grid.shades),
        "strokeDash": by_key("strokeDash", "corpus", grid.corpora, _cycled(DASHES, grid)),
    }
    layers = [*_levels(rows, at, grid, ends)]
    if len(checkpoints):
        thin = {"strokeWidth": 1, "opacity": 0.6, "color": look["color"], "detail": "line:N"}
        layers.append(draw("line", checkpoints, at, thin, tooltip=_tooltip()))
    if len(runs):
        layers += _runs(runs.assign(place=_apart(runs, grid)), at, look, grid, ends)
    return finished(layers, HEIGHT)


def _runs(
    runs: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], grid: Grid, ends: tuple[float, float]
) -> list[Layer]:
    base, at = runs, {**at, "x": with_field(at["x"], "place")}
    shape = by_key("shape", "corpus", grid.corpora, _cycled(SHAPES, grid))
    y = {"y": with_field(at["y"], "low"), "y2": "high:Q"}
    layers = [
        draw("line", base, at, look, strokeWidth=1.4, opacity=0.7, detail="line:N"),
        draw("rule", base, y, strokeWidth=2, x=at["x"], color=look["color"]),
    ]
    marks = {"size": 46, "opacity": 1, "color": look["color"], "shape": shape, "tooltip": _tooltip()}
    for several in (True, False):
        own = runs[(runs["seeds"] > 1) == several]
        if len(own):
            layers.append(draw("point", own, {"filled": True} if several else HOLLOW_MARK, at, marks))
    if max(len(grid.widths), len(grid.corpora)) > 1:
        last = runs.loc[runs.groupby("line")["tokens"].idxmax()]
        last = last.assign(name=[grid.name_of(row.width, row.corpus) for row in last.itertuples()])
        height = {"x": at["x"], "y": with_field(at["y"], "height")}
        layers.append(draw("text", _beside(last, ends), _NAME, height, color=look["color"], text="name:N"))
    return layers


def _apart(runs: pd.DataFrame, grid: Grid) -> pd.Series:
    """Tokens, with horizontal offsets between marks of different widths."""
    low, high = _domain(grid)
    places = runs["width"].map({str(width): place for place, width in enumerate(grid.widths)})
    return runs["tokens"] * (high / low) ** (_APART * (places - (len(grid.widths) - 1) / 2))


def _beside(last: pd.DataFrame, ends: tuple[float, float]) -> pd.DataFrame:
    """The last marks with the `place` and `height` of their names.

    Names at the same number of tokens cover neither each other nor a mark.
    """
    gap = (ends[1] - ends[0]) * _LINE / HEIGHT
    groups = [own for _, own in last.groupby(scale_groups(last["tokens"].tolist()))]
    return pd.concat(
        own.assign(place=own["place"].max(), height=spread(list(own["effect"]), gap, ends[1])) for own in groups
    )


def _levels(rows: pd.DataFrame, at: dict[str, Any], grid: Grid, ends: tuple[float, float]) -> list[Layer]:
    """Labelled lines of the threshold and the published value."""
    last = rows.iloc[-1]
    threshold, published = float(last["threshold"]), float(last["published"])
    upper = not published < threshold
    levels = [("needed", threshold, CONTROL, _BELOW if upper else _ABOVE)]
    if published == published:
        style = {"color": "var(--soft)", "strokeWidth": 1.2}
        levels.append(("published", published, style, _ABOVE if upper else _BELOW))
    drawn, at_the_axis = [], ends[0] + (ends[1] - ends[0]) * 1.2 * _LINE / HEIGHT
    for name, value, style, wanted in levels:
        side = _ABOVE if value < at_the_axis else wanted
        base = pd.DataFrame([{"effect": value, "tokens": grid.tokens[0] / 1.2, "text": name}])
        drawn.append(draw("rule", base, style, y=at["y"]))
        drawn.append(draw("text", base, _LINE_NAME, side, at, text="text:N"))
    return drawn


def _tokens(grid: Grid) -> Channel:
    low, high = _domain(grid)
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high) + 1)
    steps = (1, 3) if high / low > 8 else (1, 2, 5)
    values = [float(decade * step) for decade in decades for step in steps if low <= decade * step <= high]
    labels = {str(value): short(value) for value in values}
    told = " : ".join(f"datum.value == {value} ? '{label}'" for value, label in labels.items()) + " : ''"
    axis = {"values": values, "labelExpr": told, "grid": False, "labelOverlap": "greedy"}
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return channel("x", "tokens:Q", title="tokens", scale=scale, axis=axis)


def _domain(grid: Grid) -> tuple[float, float]:
    return grid.tokens[0] / 1.25, grid.tokens[1] * _ROOM


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """Axis range: all effects, threshold and published value, plus intervals up to one span beyond these."""
    core = rows[["effect", "threshold", "published"]].to_numpy(dtype=float)
    low, high = float(np.nanmin(core)), float(np.nanmax(core))
    span = (high - low) or abs(high) or 1.0
    lows, highs = (np.clip(rows[name].dropna(), low - span, high + span) for name in ("low", "high"))
    return min([low, *lows]) - 0.08 * span, max([high, *highs]) + 0.12 * span


def _cycled(values: Any, grid: Grid) -> list[Any]:
    found = [values[place % len(values)] for place in range(len(grid.corpora))]
    return [list(value) if isinstance(value, tuple) else value for value in found]


def _tooltip() -> list[Channel]:
    return tips(
        "run:N", "corpus:N", "width:N", "tokens:Q||.3s", "effect:Q||.3g", "low:Q||.3g", "high:Q||.3g", "told:N|verdict"
    )
