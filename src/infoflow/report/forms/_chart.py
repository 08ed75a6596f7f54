"""What all charts share: size and parameters, axes, tooltips, how controls, lines and highlighted marks look."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import altair as alt
import pandas as pd

from .._series import Series
from .._shown_models import JOIN
from .._theme import vega_config
from ._datasets import datasets

HEIGHT = 270
PADDING = {"left": 2, "top": 2, "right": 6, "bottom": 2}
CONTROL = {"color": "var(--control)", "strokeDash": [4, 3], "strokeWidth": 1.6}
BASELINE = {**CONTROL, "strokeDash": [1, 3]}
LABEL_GAP = 14  # pixels between direct labels
NAME = {"fontWeight": "bold", "fontSize": 11}  # of a line, beside it
VALUE = {"dy": -13, "fontSize": 10.5, "color": "var(--ink)"}  # of a mark, above it


@runtime_checkable
class Look(Protocol):
    """How one of several lines is told apart."""

    @property
    def key(self) -> str: ...
    @property
    def dash(self) -> tuple[int, ...]: ...
    @property
    def shape(self) -> str: ...


def finished(chart: alt.LayerChart | list[alt.Chart], height: int, **start: Any) -> dict[str, Any]:
    """The chart's specification with what all charts share: width, the page's parameters, config, padding.

    The page sets `highlight` to a line's key and `at_layer` to a layer, in all charts of a section at once; parameters
    of this chart have the values of `start`.
    """
    with datasets() as rows:
        spec = _layered(chart) if isinstance(chart, list) else chart.to_dict(validate=False)
    if rows:
        spec["datasets"] = spec.get("datasets", {}) | rows
    values = {**start, "highlight": "", "at_layer": -1}
    params = [*spec.pop("params", []), *({"name": name, "value": value} for name, value in values.items())]
    size = {"height": height, "params": params, "width": "container"}
    return {**_lean(spec), **size, "config": vega_config(), "padding": PADDING}


def _layered(charts: list[alt.Chart]) -> dict[str, Any]:
    """The specification of charts above one another, as `alt.layer` has it, which copies each of them three times."""
    if not all(type(chart) is alt.Chart and _plain(chart) for chart in charts):
        return alt.layer(*charts).to_dict(validate=False)
    context = {"top_level": False, "datasets": {}}
    layers = [chart.to_dict(validate=False, context=context) for chart in charts]
    spec: dict[str, Any] = {"layer": layers, "$schema": alt.SCHEMA_URL}
    if charts[0].data is not alt.Undefined and all(chart.data is charts[0].data for chart in charts):
        spec = {"data": [layer.pop("data") for layer in layers].pop(), **spec}
    return spec | ({"datasets": context["datasets"]} if context["datasets"] else {})


def _plain(chart: alt.Chart) -> bool:
    """Whether nothing of it belongs to the whole picture."""
    return all(chart[name] is alt.Undefined for name in ("params", "width", "height", "view", "resolve", "name"))


def _lean(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification without what later layers repeat of the scales and axes that all layers share."""
    seen: dict[tuple[str, str], Any] = {}
    for layer in spec["layer"]:
        for channel, own in layer.get("encoding", {}).items():
            if channel not in ("x", "y") or "field" not in own or own.get("scale", 1) is None:
                continue
            for name in ("scale", "axis", "title"):
                if name in own and (channel, name) in seen and seen[channel, name] == own[name]:
                    del own[name]
                elif name in own:
                    seen[channel, name] = own[name]
    return spec


def one_at_a_time(layers: list[alt.Chart], height: int) -> dict[str, Any]:
    """The chart of rows whose `set` is the number that the page chooses as `shown`."""
    return finished([layer.transform_filter("datum.set === shown") for layer in layers], height, shown=0)


# Altair's `when` says the same as the next two, but looks its result up in the whole schema of Vega-Lite each time that
# it is used, which takes longer than all the rest of a chart.
def opacity_if(test: str, then: float, otherwise: float) -> alt.OpacityValue:
    """The opacity `then` where the expression `test` holds."""
    return alt.OpacityValue(otherwise, condition=[{"test": test, "value": then}])


def color_if(test: str, then: str, otherwise: str | alt.Color) -> alt.ColorValue | alt.Color:
    """The colour `then` where the expression `test` holds, else another colour or that of a scale."""
    if isinstance(otherwise, str):
        return alt.ColorValue(otherwise, condition=[{"test": test, "value": then}])
    color = otherwise.copy(deep=False)
    color["condition"] = {"test": test, "value": then}
    return color


def lit(opacity: float = 1.0, dimmed: float = 0.12, of: Series | None = None) -> alt.OpacityValue:
    """Opacity of a mark: dimmed while another line is highlighted; a pair is lit with either of its models.

    `of`: the line of models that the whole chart is about, whose rows do not name it.
    """
    test = "highlight === '' || "
    if of is not None:
        test += f"highlight === {json.dumps(of.key)}"
    else:
        test += f"indexof(split(datum.series, '{JOIN}'), highlight) >= 0 || datum.series === highlight"
    return opacity_if(test, opacity, opacity * dimmed)


def amount(field: str, title: str | None, domain: Iterable[float] | None = None, **how: Any) -> dict[str, Any]:
    """An axis of numbers, for `alt.X` or `alt.Y`: exactly of that domain; `how`: of its `ticks`, its scale."""
    ticks = {name: how.pop(name) for name in ("format", "values", "labelExpr", "tickMinStep", "grid") if name in how}
    many = {} if "values" in ticks else {"tickCount": how.pop("ticks", 5)}
    axis = alt.Axis(**many, **ticks)
    fixed = {} if domain is None else {"domain": list(domain), "nice": False}
    return {
        "shorthand": f"{field}:Q",
        "title": title,
        "axis": axis,
        "scale": alt.Scale(**({"zero": False} | fixed | how)),
    }


def with_field(channel: Any, field: str) -> Any:
    """The same axis for another field."""
    other = channel.copy(deep=False)  # its scale and axis are read, and not changed
    other.shorthand = f"{field}:Q"
    return other


def values_of(field: str, keys: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A colour, dash or shape for each key, for an encoding that has no legend."""
    return {"shorthand": f"{field}:N", "scale": alt.Scale(domain=list(keys), range=list(values)), "legend": None}


def color_of(series: Sequence[Series]) -> alt.Color:
    return alt.Color(**values_of("series", [s.key for s in series], [s.color for s in series]))


def dash_of(lines: Sequence[Look], field: str = "series") -> alt.StrokeDash:
    return alt.StrokeDash(**values_of(field, [s.key for s in lines], [list(s.dash) for s in lines]))


def shape_of(lines: Sequence[Look], field: str = "series") -> alt.Shape:
    return alt.Shape(**values_of(field, [s.key for s in lines], [s.shape for s in lines]))


def tips(*fields: str) -> list[alt.Tooltip]:
    """Tooltips, each as `field:type`, `field:type|name` or `field:type|name|format`."""
    parts = [[*field.split("|"), "", ""][:3] for field in fields]
    return [
        alt.Tooltip(field, **({"title": name} if name else {}), **({"format": shape} if shape else {}))
        for field, name, shape in parts
    ]


def bounded(rows: pd.DataFrame, bounds: tuple[float, float]) -> pd.DataFrame:
    """The rows with intervals cut where no value can lie: a t interval of a share near 0 may reach below it."""
    low, high = (rows["value"].clip(upper=bounds[0]), rows["value"].clip(lower=bounds[1]))
    return rows.assign(low=rows["low"].clip(lower=low), high=rows["high"].clip(upper=high))


def spread(positions: list[float], gap: float, high: float) -> list[float]:
    """The positions moved apart to at least `gap`, in their order, none above `high` unless it was."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for previous, current in pairwise(order):
        placed[current] = max(placed[current], placed[previous] + gap)
    if order and placed[order[-1]] > high >= positions[order[-1]]:
        placed[order[-1]] = high
        for current, following in reversed(list(pairwise(order))):
            placed[current] = min(placed[current], placed[following] - gap)
    return placed
