"""The grammar of charts: rows of a table, marks for them, and channels that encode fields."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

Layer = alt.Chart
Rows = pd.DataFrame | alt.Chart
Channel = Any
_FIELD = re.compile(r"[\w.\[\] ]+:[QNO]")
_PARTS = {"scale": alt.Scale, "axis": alt.Axis, "legend": alt.Legend}


class Constant(NamedTuple):
    """A channel with one value for all rows: a colour, a number of pixels, an opacity, a text."""

    value: Any


def draw(kind: str, rows: Rows, /, *looks: Mapping[str, Any], **look: Any) -> Layer:
    """One layer: a mark for each row.

    Args:
        kind: "point", "line", "rule", "rect", "text", "area" or "bar".
        rows: A table, or one with transforms (`filtered`, `calculated`, `flattened`).
        looks: Channels and styles shared by several layers, such as `at` and `CONTROL`; later ones win.
        look: Channels that vary by row: a field as "name:type" (Q: number, N: name, O: ordered), a `channel`, tooltips
            (`tips`) or a `Constant`. Everything else styles all marks, with Vega-Lite's names; None omits a channel.

    >>> draw("point", pd.DataFrame({"layer": [1]}), x="layer:Q", size=40, color="red").to_dict(validate=False)["mark"]
    {'color': 'red', 'size': 40, 'type': 'point'}
    """
    every = {name: own for part in (*looks, look) for name, own in part.items() if own is not None}
    channels = {name: _channel(name, own) for name, own in every.items() if _differs(own)}
    style = {name: own for name, own in every.items() if name not in channels}
    return getattr(_layer(rows), f"mark_{kind}")(**style).encode(**channels)


def channel(name: str, field: str, **how: Any) -> Channel:
    """The channel `name` for a field ("name:type") with a title, a scale, an axis or an order.

    >>> channel("x", "tokens:Q", title="tokens", scale={"type": "log"}).to_dict(validate=False)
    {'field': 'tokens', 'scale': {'type': 'log'}, 'title': 'tokens', 'type': 'quantitative'}
    """
    parts = {key: _PARTS[key](**own) if key in _PARTS and isinstance(own, dict) else own for key, own in how.items()}
    return getattr(alt, _class_name(name))(field, **parts)


def also(layer: Layer, **channels: Channel) -> Layer:
    """The same marks with additional channels."""
    return layer.encode(**{name: _channel(name, own) for name, own in channels.items()})


def unchanged(rows: pd.DataFrame) -> pd.DataFrame:
    return rows


def nested(rows: list[dict[str, Any]]) -> Layer:
    """Rows whose values may be lists."""
    return alt.Chart(alt.Data(values=rows))  # type: ignore[call-arg]


def filtered(rows: Rows, test: str) -> Layer:
    """Keep the rows for which the expression `test` holds; evaluated in the browser."""
    return _layer(rows).transform_filter(test)


def calculated(rows: Rows, **fields: str) -> Layer:
    """Add fields to the rows, each computed by an expression."""
    return _layer(rows).transform_calculate(**fields)


def flattened(rows: Rows, fields: list[str]) -> Layer:
    """One row per item of the lists in these fields."""
    return _layer(rows).transform_flatten(fields)


def expression(text: str) -> Any:
    """An expression that the page evaluates while drawing, such as "width / 2"."""
    return alt.expr(text)


def _differs(value: Any) -> bool:
    if isinstance(value, str):
        return _FIELD.fullmatch(value) is not None
    tooltips = isinstance(value, list) and bool(value) and isinstance(value[0], alt.Tooltip)
    return tooltips or isinstance(value, Constant) or hasattr(value, "_encoding_name")


def _layer(rows: Rows) -> Layer:
    return rows if isinstance(rows, alt.Chart) else alt.Chart(rows)


def _channel(name: str, value: Channel) -> Channel:
    # Altair also accepts fields as texts, but needs ten times as long to resolve their channels.
    if isinstance(value, str):
        return channel(name, value)
    if isinstance(value, Constant):
        return getattr(alt, f"{_class_name(name)}Value")(value.value)
    return value


def _class_name(name: str) -> str:
    return name[0].upper() + name[1:]


def span(*values: Any, margin: float = 0.05, flat: float = 0.1) -> tuple[float, float]:
    """Range of all known values (tables, columns, numbers), with a margin on both sides.

    Args:
        values: Values that the axis must contain.
        margin: As a share of the range.
        flat: The margin if the range is 0.

    >>> span([1.0, 3.0], float("nan"), margin=0.5)
    (0.0, 4.0)
    """
    known = np.concatenate([np.asarray(each, dtype=float).ravel() for each in values])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = margin * (high - low) or flat
    return low - room, high + room


HOLLOW = "not seeds (hollow marks)"
"""Ends a sentence about intervals over sentences; the front page states once that there is only one seed."""


def point_style(rows: pd.DataFrame) -> dict[str, Any]:
    """The point style for `rows`, from the number of seeds behind each if it is known."""
    if len(rows) and "seeds" in rows and int(rows["seeds"].max()) < 2:
        return {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6, "opacity": 1}
    return {"filled": True, "opacity": 1}
