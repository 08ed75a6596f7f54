"""The report's charts as Altair charts, and Altair charts as pictures that need no network."""

import json
from typing import Any

import altair as alt

from infoflow.foundation import in_notebook

from .._figure import Panel
from .._theme import on_paper
from ._live import live_html
from ._markup import in_theme
from ._picture import ONE_PANEL, picture

RENDERER = "infoflow"
_DEFAULTS = ("", "default", "html")  # Altair's own renderers, which load their scripts from the network


def altair_chart(panel: Panel, width: int) -> alt.LayerChart:
    """The panel as an Altair chart to change and save: colours of paper, and a width of its own."""
    title = {"title": panel.title} if panel.title else {}
    spec = json.loads(on_paper(json.dumps({**panel.spec, **title, "width": width})))
    spec["config"] = {**spec.get("config", {}), "background": "transparent"}
    spec.pop("$schema", None)  # not allowed in a chart that becomes part of another
    return alt.LayerChart.from_dict(spec)


def beside(charts: list[alt.LayerChart], columns: int) -> Any:
    """Join charts in rows of `columns`, stating shared properties once."""
    plain, datasets = [], {}
    for chart in charts:
        one = chart.copy()
        one.config, one.padding = alt.Undefined, alt.Undefined
        datasets |= {} if one.datasets is alt.Undefined else one.datasets.to_dict()
        one.datasets = alt.Undefined
        plain.append(one)
    if len(charts) == 1:
        return charts[0]
    joined = alt.concat(*plain, columns=columns)
    joined.config, joined.datasets = charts[0].config, datasets
    return joined


def show_charts_offline() -> None:
    """In notebooks, show Altair charts like this library's figures, unless the user has chosen a renderer."""
    alt.renderers.register(RENDERER, render)
    if alt.renderers.active in _DEFAULTS and in_notebook():
        alt.renderers.enable(RENDERER)


def render(spec: dict[str, Any], **metadata: Any) -> dict[str, str]:
    """An Altair renderer: any chart as a picture that needs neither scripts nor a network.

    Select it with `alt.renderers.enable("infoflow")`; this library's figures enable it if no other was chosen.
    `live=True` puts the interactive chart over the picture (0.5 MB each).
    """
    panel = Panel(spec={**spec, "width": ONE_PANEL} if spec.get("width") == "container" else spec)
    still = picture(panel, 0, "chart")
    shown = live_html(still, [panel.spec], 0) if metadata.get("live") else still
    return {"text/html": str(in_theme(shown)), "text/plain": "chart"}
