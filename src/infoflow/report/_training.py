"""How training went: scores on the task, beside what a model that ignores context would score."""

import altair as alt
import pandas as pd

from infoflow.results import RunFolder

from ._figure import Figure, Panel, Section
from ._language import Cast, Series
from ._layer_chart import color_scale, lit, shape_scale
from ._numbers import estimate_text, listed, number
from ._samples import Samples
from ._theme import vega_config

_METRICS = {
    "loss": ("loss", "nats per token", "lower is better", "unigram frequencies"),
    "perplexity": ("perplexity", "", "lower is better", "unigram frequencies"),
    "accuracy": ("accuracy", "", "higher is better", "always the most frequent token"),
    "bleu": ("BLEU", "", "higher is better", "copying the source"),
}


def training_section(run: RunFolder, cast: Cast) -> Section | None:
    """The section, or None where no task was scored."""
    if "task_scores" not in run.tables or run.tables["task_scores"].empty:
        return None
    scores = cast.named(run.tables["task_scores"])
    scores = scores[scores["split"] == ("test" if (scores["split"] == "test").any() else scores["split"].iloc[0])]
    return Section(
        id="training",
        title="How did training make it so?",
        lead="What a model's layers hold means little before it has learned its task. These are the scores that say "
        "whether it has.",
        figures=[_score_figure(scores, cast)],
        keys=[series for series in cast.series if series.key in set(scores["series"])],
        untrained=bool((~scores["trained"]).any()),
    )


def _score_figure(scores: pd.DataFrame, cast: Cast) -> Figure:
    table = _score_table(scores, cast)
    metrics = [metric for metric in _METRICS if metric in set(table["metric"])]
    metrics += sorted(set(table["metric"]) - set(metrics))
    seeds = int(table["seeds"].max())
    bands = (
        f"means over {seeds} seeds with 95% t intervals"
        if seeds > 1
        else "95% intervals from a bootstrap over sentences"
    )
    signatures = sorted({str(s) for s in scores.get("signature", []) if s})
    return Figure(
        id="task-scores",
        question="Did the models learn their tasks?",
        answer=[_score_sentence(table, metric, cast) for metric in metrics],
        panels=[
            Panel(spec=_score_chart(table[table["metric"] == metric], metric, cast), title=_panel_title(metric))
            for metric in metrics
        ],
        caption=f"Points are {bands}; {scores['split'].iloc[0]} part of the corpus."
        + (f" sacreBLEU signature: {listed(signatures)}." if signatures else ""),
        how_to_read=[
            "One panel per score, one line per model. The dashed grey tick is a reference that ignores context: "
            "unigram frequencies for the loss, the most frequent token for accuracy, a copy of the source for BLEU.",
            "Losses of different objectives are not comparable with each other: predicting the next token, a hidden token "
            "and a translation are different tasks. Compare each with its own reference.",
        ],
        method="task-scores",
        data=table,
        tables=("task_scores",),
    )


def _score_table(scores: pd.DataFrame, cast: Cast) -> pd.DataFrame:
    """One row per line, metric and control; untrained values only in the numbers, since they would squash the chart."""
    rows = []
    for (series, metric, trained), own in scores.groupby(["series", "metric", "trained"], sort=False):
        estimate = Samples.of(own).estimate()
        rows.append(
            {
                "series": series,
                "label": cast[series].label,
                "metric": metric,
                "group": "trained" if trained else "untrained",
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "baseline": float(own["baseline"].mean()),
                "seeds": estimate.seeds,
                "count": estimate.count,
                "shown": estimate_text(estimate),
            }
        )
    return pd.DataFrame(rows)


def _panel_title(metric: str) -> str:
    label, unit, direction, _ = _METRICS.get(metric, (metric, "", "", ""))
    return ", ".join(part for part in (f"{label} ({unit})" if unit else label, direction) if part)


def _score_sentence(table: pd.DataFrame, metric: str, cast: Cast) -> str:
    label, unit, direction, reference = _METRICS.get(metric, (metric, "", "", "the reference"))
    parts = []
    for series in cast.series:
        own = table[(table["series"] == series.key) & (table["metric"] == metric) & (table["group"] == "trained")]
        for row in own.itertuples():
            better = row.high < row.baseline if direction.startswith("lower") else row.low > row.baseline
            verdict = "better than" if better else "not clearly better than"
            parts.append(f"{series.label} {row.shown}, {verdict} the reference's {number(row.baseline)}")
    head = f"{label[:1].upper()}{label[1:]}{f' in {unit}' if unit else ''}"
    return f"{head}: {'; '.join(parts)} ({reference})." if parts else ""


def _score_chart(table: pd.DataFrame, metric: str, cast: Cast) -> dict:
    trained = table[table["group"] == "trained"]
    series: list[Series] = [s for s in cast.series if s.key in set(trained["series"])]
    order = [s.label for s in series]
    x = alt.X(
        "value:Q",
        title=_METRICS.get(metric, (metric,))[0],
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(grid=True, tickCount=5),
    )
    y = alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=110, grid=False))
    color = alt.Color("series:N", scale=color_scale(series), legend=None)
    base = alt.Chart(trained)
    tooltip = [
        "label:N",
        alt.Tooltip("shown:N", title="value"),
        alt.Tooltip("baseline:Q", title="reference", format=".3g"),
    ]
    layers = [
        base.mark_tick(color="var(--control)", thickness=2, size=22, strokeDash=[4, 3]).encode(x=alt.X("baseline:Q", title=x["title"]), y=y),
        base.mark_rule(strokeWidth=2.2).encode(x=alt.X("low:Q", title=x["title"]), x2="high:Q", y=y, color=color, opacity=lit()),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=color, opacity=lit(), tooltip=tooltip,
            shape=alt.Shape("series:N", scale=shape_scale(series), legend=None),
        ),
        base.mark_text(dy=-13, fontSize=10.5, color="var(--ink)").encode(x=x, y=y, text="shown_value:N"),
    ]  # fmt: skip
    layers[-1].data = trained.assign(shown_value=[text.split(" (")[0] for text in trained["shown"]])
    chart = alt.layer(*layers).add_params(alt.param(name="highlight", value=""))
    spec = chart.properties(width="container", height=30 + 38 * max(len(series), 1)).to_dict()
    return {**spec, "config": vega_config(), "padding": {"left": 4, "top": 8, "right": 14, "bottom": 4}}
