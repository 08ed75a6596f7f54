"""Loss on domain text beside the end tasks, over strategies: the figure that Legal-BERT's paper has."""

from typing import Any

import altair as alt
import pandas as pd

from infoflow.results import score_bounds

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import amount, finished, tips
from ..forms._names import names_above
from ._methods import SCORES
from ._rows import FULL, STRATEGIES, averaged, bands, estimated, most_examples, of

_HEIGHT = 230
_BY = ["task", "metric", "strategy"]
_MARKS = {"as-is": ("circle", "●"), "continued": ("square", "■"), "scratch": ("triangle-up", "▲")}


def domain_figure(losses: pd.DataFrame, scores: pd.DataFrame | None, models: ShownModels) -> ReportFigure | None:
    """A panel for each line with a score and a loss under two strategies; None without any."""
    if scores is None:
        return None
    own = most_examples(scores[(scores["control"] == "") & scores["trained"] & (scores["method"] == FULL)])
    ends = estimated(averaged(own, _BY), _BY, score_bounds)
    told = estimated(averaged(losses[losses["text"] == "domain"], ["strategy"]), ["strategy"])
    beside = told[["series", "strategy", "value", "low", "high", "shown"]]
    beside = beside.rename(columns={name: f"loss_{name}" for name in ("value", "low", "high", "shown")})
    data = ends.merge(beside, on=["series", "strategy"])
    counts = data.groupby("series")["strategy"].nunique()
    data = data[data["series"].isin(counts[counts > 1].index)]
    if data.empty:
        return None
    series = models.present(data)
    return ReportFigure(
        id="tuned-domain",
        question="Does a lower loss on the domain's text mean better tasks?",
        answer=[text for one in series for text in _sentences(of(data, series=one.key), one.label)],
        panels=[Panel(spec=_chart(of(data, series=one.key), one), title=one.label) for one in series],
        caption=f"{bands(data)} Losses are per word, so that vocabularies can be compared; whiskers: 95% intervals.",
        how_to_read=[
            "Across: pretraining loss on text of the domain, in nats per word; left is better. Up: score of the tuned "
            "model. A line joins the strategies of one task; the mark tells the strategy.",
            "If loss ordered the tasks, all lines would fall from left to right. Where one does not, the loss is no "
            "substitute for tuning and scoring.",
        ],
        method=SCORES,
        data=data,
        tables=("domain_loss", "tuned_scores"),
        findings=("adaptation:A-5",),
    )


def _chart(rows: pd.DataFrame, series: Series) -> dict[str, Any]:
    rows = rows.assign(named=[STRATEGIES.get(name, name) for name in rows["strategy"].astype(str)])
    at = {
        "x": alt.X(**amount("loss_value", "loss on domain text (nats per word)")),
        "y": alt.Y(**amount("value", "score")),
    }
    present = [name for name in _MARKS if name in set(rows["strategy"].astype(str))]
    scale = alt.Scale(domain=present, range=[_MARKS[name][0] for name in present])
    shape = alt.Shape("strategy:N", scale=scale, legend=None)
    base = alt.Chart(rows)
    last = rows.loc[rows.groupby("task")["loss_value"].idxmax()]
    labels = alt.Chart(last).mark_text(align="left", dx=8, fontSize=10.5, color="var(--soft)", limit=110)
    tooltip = tips("task:N", "named:N|pretraining", "loss_shown:N|loss", "shown:N|score")
    drawn = [
        base.mark_line(strokeWidth=1.2, color="var(--soft)", opacity=0.7).encode(
            **at, detail=alt.Detail("task:N"), order=alt.Order("loss_value:Q")
        ),
        base.mark_rule(color=series.color, opacity=0.6).encode(x=at["x"], y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=60, opacity=1, color=series.color).encode(**at, shape=shape, tooltip=tooltip),
        labels.encode(**at, text=alt.Text("task:N")),
    ]
    names = [(_MARKS[name][1], STRATEGIES[name], series.color) for name in present]
    return finished([*drawn, names_above(names)], _HEIGHT)


def _sentences(rows: pd.DataFrame, name: str) -> list[str]:
    means = rows.groupby("strategy")[["value", "loss_value"]].mean()
    lowest, best = str(means["loss_value"].idxmin()), str(means["value"].idxmax())
    ordered = [str(task) for task, own in rows.groupby("task", sort=False) if _falls(own)]
    told = (
        f"In {name}, “{STRATEGIES.get(lowest, lowest)}” has the lowest loss ({number(means['loss_value'].min(), 2)}), "
    )
    told += (
        "and the best mean score too."
        if lowest == best
        else f"“{STRATEGIES.get(best, best)}” the best mean score ({number(means['value'].max(), 2)})."
    )
    whole = rows["task"].nunique()
    of_all = f"On {len(ordered)} of {whole} tasks" + (f" ({listed(ordered)})" if 0 < len(ordered) < whole else "")
    return [told, f"{of_all} every lower loss goes with a better score."]


def _falls(own: pd.DataFrame) -> bool:
    return bool(own.sort_values("loss_value")["value"].is_monotonic_decreasing)
