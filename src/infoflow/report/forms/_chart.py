"""Shared parts of all charts: size and parameters, axes, tooltips, styles, and charts side by side."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import altair as alt
import pandas as pd

from .._model_selection import JOIN
from .._theme import Series, vega_config
from ._marks import Channel, Layer, channel, filtered

HEIGHT = 270
PADDING = {"left": 2, "top": 2, "right": 6, "bottom": 2}
CONTROL = {"color": "var(--control)", "strokeDash": [4, 3], "strokeWidth": 1.6}
BASELINE = {**CONTROL, "strokeDash": [1, 3]}
LABEL_GAP = 14  # pixels between direct labels
NAME = {"fontWeight": "bold", "fontSize": 11}  # label next to a line
VALUE = {"dy": -13, "fontSize": 10.5, "color": "var(--ink)"}  # label above a mark
_NAME = "infoflow-datasets"


@runtime_checkable
class Look(Protocol):
    """What distinguishes a line from others: its colour, dash and mark."""

    @property
    def key(self) -> str: ...
    @property
    def dash(self) -> tuple[int, ...]: ...
    @property
    def shape(self) -> str: ...


def finished(layers: list[Layer], height: int, **start: Any) -> dict[str, Any]:
    """The complete chart specification: adds width, the page's parameters, config and padding.

    The page sets `highlight` to a line's key and `at_layer` to a layer in all charts of a section at once; the chart's
    own parameters start with the values in `start`. Layers without rows are left out.
    """
    with datasets() as rows:
        drawn = [layer for layer in layers if not (isinstance(layer.data, pd.DataFrame) and layer.data.empty)] or layers
        spec = alt.layer(*drawn).to_dict(validate=False)
    if rows:
        spec["datasets"] = spec.get("datasets", {}) | rows
    values = {**start, "highlight": "", "at_layer": -1}
    params = [*spec.pop("params", []), *({"name": name, "value": value} for name, value in values.items())]
    size = {"height": height, "params": params, "width": "container"}
    return {**_lean(spec), **size, "config": vega_config(), "padding": PADDING}


def _lean(spec: dict[str, Any]) -> dict[str, Any]:
    """Drop scales and axes from later layers where they repeat those that all layers share."""
    seen: dict[tuple[str, str], Any] = {}
    for layer in spec["layer"]:
        for key, own in layer.get("encoding", {}).items():
            if key not in ("x", "y") or "field" not in own or own.get("scale", 1) is None:
                continue
            for name in ("scale", "axis", "title"):
                if name in own and (key, name) in seen and seen[key, name] == own[name]:
                    del own[name]
                elif name in own:
                    seen[key, name] = own[name]
    return spec


def one_at_a_time(layers: list[Layer], height: int, always: Sequence[Layer] = ()) -> dict[str, Any]:
    """A chart that shows only the rows whose `set` equals the page's parameter `shown`, and all of `always`."""
    return finished([*(filtered(layer, "datum.set === shown") for layer in layers), *always], height, shown=0)


# Equivalent to Altair's `when`, which looks each result up in the whole schema of Vega-Lite and so takes longer than
# the rest of a chart.
def opacity_if(test: str, then: float, otherwise: float) -> Channel:
    """Opacity `then` where the expression `test` holds, and `otherwise` elsewhere."""
    return alt.OpacityValue(otherwise, condition=[{"test": test, "value": then}])


def color_if(test: str, then: str, otherwise: str | Channel) -> Channel:
    """Colour `then` where the expression `test` holds; elsewhere another colour, or that of a scale."""
    if isinstance(otherwise, str):
        return alt.ColorValue(otherwise, condition=[{"test": test, "value": then}])
    color = otherwise.copy(deep=False)
    color["condition"] = {"test": test, "value": then}
    return color


def lit(opacity: float = 1.0, dimmed: float = 0.12, of: Series | None = None) -> Channel:
    """Opacity of a mark, dimmed while another line is highlighted; a pair lights up with either of its models.

    `of`: the line that the whole chart is about, if its rows do not name it.
    """
    test = "highlight === '' || "
    if of is not None:
        test += f"highlight === {json.dumps(of.key)}"
    else:
        test += f"indexof(split(datum.series, '{JOIN}'), highlight) >= 0 || datum.series === highlight"
    return opacity_if(test, opacity, opacity * dimmed)


def amount(name: str, field: str, title: str | None, domain: Iterable[float] | None = None, **how: Any) -> Channel:
    """The channel "x" or "y" for numbers, with exactly the given domain.

    `how` takes `ticks` and properties of Vega-Lite's axis and scale; None omits a property.
    """
    further = {part: how.pop(part) for part in ("stack",) if part in how}
    ticks = {part: how.pop(part) for part in ("format", "values", "labelExpr", "tickMinStep", "grid") if part in how}
    many = {} if "values" in ticks else {"tickCount": how.pop("ticks", 5)}
    fixed = {} if domain is None else {"domain": list(domain), "nice": False}
    scale = _stated({"zero": False} | fixed | how)
    return channel(name, f"{field}:Q", title=title, axis=_stated(many | ticks), scale=scale, **further)


def _stated(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None}


def with_field(channel: Any, field: str) -> Any:
    """The same channel for another field."""
    other = channel.copy(deep=False)  # reads its scale and axis, and does not modify them
    other.shorthand = f"{field}:Q"
    return other


def by_key(name: str, field: str, keys: Sequence[str], values: Sequence[Any]) -> Channel:
    """The channel `name` ("color", "shape", ...) with one value per key of a field, without a legend."""
    return channel(name, f"{field}:N", scale={"domain": list(keys), "range": list(values)}, legend=None)


def color_of(series: Sequence[Series]) -> Channel:
    return by_key("color", "series", [s.key for s in series], [s.color for s in series])


def dash_of(lines: Sequence[Look], field: str = "series") -> Channel:
    return by_key("strokeDash", field, [s.key for s in lines], [list(s.dash) for s in lines])


def shape_of(lines: Sequence[Look], field: str = "series") -> Channel:
    return by_key("shape", field, [s.key for s in lines], [s.shape for s in lines])


def tips(*fields: str) -> list[Channel]:
    """Tooltips, each as `field:type`, `field:type|name` or `field:type|name|format`."""
    parts = [[*field.split("|"), "", ""][:3] for field in fields]
    return [
        alt.Tooltip(field, **({"title": name} if name else {}), **({"format": shape} if shape else {}))
        for field, name, shape in parts
    ]


def bounded(rows: pd.DataFrame, bounds: tuple[float, float]) -> pd.DataFrame:
    """Cut intervals at the bounds of the quantity, since a t interval of a share near 0 may reach below 0."""
    low, high = (rows["value"].clip(upper=bounds[0]), rows["value"].clip(lower=bounds[1]))
    return rows.assign(low=rows["low"].clip(lower=low), high=rows["high"].clip(upper=high))


def spread(positions: list[float], gap: float, high: float) -> list[float]:
    """Move positions apart to at least `gap`, in the same order; none exceeds `high` unless it did before."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for previous, current in pairwise(order):
        placed[current] = max(placed[current], placed[previous] + gap)
    if order and placed[order[-1]] > high >= positions[order[-1]]:
        placed[order[-1]] = high
        for current, following in reversed(list(pairwise(order))):
            placed[current] = min(placed[current], placed[following] - gap)
    return placed


@contextmanager
def datasets() -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Context in which chart specifications refer to tables by name; yields the rows by name.

    Altair itself would convert a table once per layer. Names, rows and values are those that Altair would write; NaN
    becomes `None`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    names: dict[int, tuple[str, pd.DataFrame]] = {}  # keeps the table alive, so that no other one reuses its identity

    def named(frame: Any) -> Any:
        if not isinstance(frame, pd.DataFrame):
            return frame
        if id(frame) not in names:
            rows = records(frame)
            text = json.dumps(rows, sort_keys=True, default=str)
            name = f"data-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
            names[id(frame)] = (name, frame)
            found[name] = rows
        return alt.NamedData(name=names[id(frame)][0])

    alt.data_transformers.register(_NAME, named)
    try:
        with alt.data_transformers.enable(_NAME):
            yield found
    finally:
        alt.data_transformers.register(_NAME, None)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row, with JSON values."""
    return alt.utils.sanitize_pandas_dataframe(frame).to_dict(orient="records")


# Axes of charts shown side by side: the panels of one figure, or one figure for several architectures.

_FREE = 5.0  # times the smallest span; beyond this ratio, the smallest would be a flat line on the largest scale


def free_scales(spans: Iterable[float]) -> bool:
    """Whether the spans of panels differ so much that each needs its own scale.

    >>> free_scales([0.5, 0.2]), free_scales([0.5, 0.02])
    (False, True)
    """
    known = [span for span in spans if span == span]
    return len(known) > 1 and max(known) > _FREE * min(known)


def scale_note(spans: Iterable[float], shared: str, each: str = "panel") -> str:
    """Caption text: `shared`, or by how much the spans differ if each panel (or model) has its own scale."""
    known = [span for span in spans if span == span]
    if not free_scales(known):
        return shared
    ratio = max(known) / min(known) if min(known) > 0 else math.inf
    times = f"{ratio:,.0f} times" if ratio < 1000 else "far more than"
    return f"Each {each} has its own scale: the largest spans {times} the smallest."


class Frame(NamedTuple):
    """Ranges of a chart's axes: layers and values."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def around(cls, frames: Iterable["Frame"]) -> "Frame":
        """The smallest frame that contains all of them."""
        firsts, lasts, lows, highs = zip(*frames, strict=True)
        return cls(min(firsts), max(lasts), min(lows), max(highs))


class AbstractForm(ABC):
    """A chart whose axes can be set from outside."""

    @property
    @abstractmethod
    def frame(self) -> Frame:
        """Axis ranges: the chosen ones, or those of its own data."""

    @property
    def compared(self) -> bool:
        """Whether the other panels of its figure share its axes."""
        return False

    @property
    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification, as wide as its container."""

    def within(self, frame: Frame) -> "AbstractForm":
        """The same chart with these axes, stored in its field `chosen`."""
        return replace(self, chosen=frame)  # type: ignore[type-var]
