"""What readers know while they learn: right answers, likelihood and retrieval utility at the updates that were kept."""

from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._chart import amount, finished, tips
from ..forms._lines import lines, looks_of
from ..forms._names import names_above
from ._methods import COURSE
from ._rows import plain_arms, span

_HEIGHT = 210


class _Panel(NamedTuple):
    metric: str
    facts: str
    title: str
    unit: str


_PANELS = (
    _Panel("p1", "held out", "right answers, facts held out", "share of questions"),
    _Panel("p1", "trained", "right answers, trained facts", "share of questions"),
    _Panel("utility", "trained", "retrieval utility, trained facts", "nats"),
    _Panel("log_likelihood", "trained", "log-likelihood, trained facts", "nats"),
)


def course_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Panels over updates, a line for each arm; None without kept updates."""
    own = plain_arms(frame).dropna(subset="value")
    if own.empty:
        return None
    data = _means(own, models)
    shown = [panel for panel in _PANELS if len(of(data, metric=panel.metric, facts=panel.facts))]
    panels = [
        Panel(spec=_curve(of(data, metric=panel.metric, facts=panel.facts), models, panel), title=panel.title)
        for panel in shown
    ]
    return ReportFigure(
        id="retrieval-course",
        question="When do readers come to answer?",
        answer=[_sentence(data, models)],
        panels=panels,
        caption=f"{_bands(data)} Own candidates of that update; wordings that training does not have.",
        how_to_read=[
            "A mark is an update whose weights were kept. What a reader answers rightly about facts held out it has "
            "read, since no training question asks for them; trained facts it can also know by heart.",
            "Retrieval utility is how much likelier the answer is with what was found than without a passage; a "
            "reader without passages has none. It would be surprising if it rose while answers about facts held out "
            "fell.",
        ],
        method=COURSE,
        data=data,
        tables=("retrieval_course",),
        findings=("retrieval:R-13",),
        payload={"apart": True},
    )


def _bands(data: pd.DataFrame) -> str:
    seeds, count = int(data["seeds"].max()), round(float(data["count"].median()))
    if seeds > 1:
        return f"Means over {seeds} seeds, bands from the lowest to the highest; {count:,} questions for a number."
    return f"One seed; bands are 95% intervals over facts; {count:,} questions for a number."


def _means(own: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Mean over seeds with the ends of the mean interval: of one seed its own; of several the lowest and highest."""
    by = ["series", "facts", "metric", "update"]
    groups: Any = own.groupby(by, as_index=False, sort=False)
    found = groups.agg(
        value=("value", "mean"),
        low=("low", "mean"),
        high=("high", "mean"),
        lowest=("value", "min"),
        highest=("value", "max"),
        seeds=("seed", "nunique"),
        count=("count", "mean"),
    )
    several = found["seeds"] > 1
    low, high = found["low"].mask(several, found["lowest"]), found["high"].mask(several, found["highest"])
    labels = {one.key: one.label for one in models.series}
    found = found.assign(low=low, high=high, name=found["series"].map(labels))
    return found.drop(columns=["lowest", "highest"]).sort_values(["series", "update"], kind="stable", ignore_index=True)


def _curve(rows: pd.DataFrame, models: ShownModels, panel: _Panel) -> dict[str, Any]:
    series = models.present(rows)
    ends = [0.0, 1.02 * float(rows["update"].max())]
    bounds = [-0.01, 1.02] if panel.metric == "p1" else span(rows)
    at = {
        "x": alt.X(**amount("update", "update", ends, format="~s", ticks=5)),
        "y": alt.Y(**amount("value", panel.unit, bounds)),
    }
    tooltip = tips("name:N|trained as", "update:Q|update|,", f"value:Q|{panel.title}|.3f")
    found = lines(rows, at, looks_of(series), size=24, touch=90, tooltip=tooltip)
    return finished([*found, names_above([("—", one.label, one.color) for one in series])], _HEIGHT)


def _sentence(data: pd.DataFrame, models: ShownModels) -> str:
    """Of each arm what it answers of facts held out at last, and by when half of that was there."""
    told = []
    right = of(data, metric="p1", facts="held out")
    for one in models.present(right):
        own = of(right, series=one.key).sort_values("update")
        first, last = float(own["value"].iloc[0]), float(own["value"].iloc[-1])
        when = ""
        if last > first:
            half = int(own.loc[own["value"] >= (first + last) / 2, "update"].iloc[0])
            when = f", half of the rise by update {half:,}"
        told.append(f"{one.label} {number(100 * last, 0)}%{when}")
    return f"Facts held out are answered rightly at the end in: {listed(told)}."
