"""How the loss fell in training: one line per objective over the tokens it read."""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, both_extremes, extreme, plain, sentence
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, HEIGHT, LABEL_GAP, NAME, amount, finished, lit, spread, tips, with_field
from ..forms._lines import lines, looks_of

TASK_SCORES = Method(
    id="task-scores",
    title="Task scores",
    text="""
    Loss is the cross-entropy per supervised token in nats; BLEU is sacreBLEU of beam search with the signature in the
    caption.
    """,
)

_POINTS = 80  # of a line
_LABEL_ROOM = 1.6  # factor by which the logarithmic axis goes on behind the last point


def learning_figure(frame: pd.DataFrame, scores: pd.DataFrame, models: ShownModels) -> ReportFigure:
    """Training loss by tokens read, beside the loss of unigram frequencies."""
    table = _seed_means(frame)
    table = table.merge(_unigram(scores), on="series", how="left")
    series = models.present(table)
    seeds = int(table["seeds"].max())
    return ReportFigure(
        id="learning-curves",
        question="How did the loss fall?",
        answer=[_sentence(table, series)],
        words=_words(table, series),
        panels=[Panel(spec=_chart(table, series))],
        caption="Training loss, each point the mean since the one before"
        + (f"; lines are means over {seeds} seeds, bands go from the lowest seed to the highest." if seeds > 1 else ".")
        + " Both axes are logarithmic.",
        how_to_read=[
            "Across: how many source tokens the model had read. Up: the loss it was trained on, under dropout and the "
            "objective's own noise (and label smoothing in translation), so it lies above the loss on unseen text.",
            "The dashed grey lines are what token frequencies alone would score; a curve that stays near its line has "
            "learned no more than that. A curve that is still falling at its end would gain from a longer training.",
            "Losses of different objectives cannot be compared with each other.",
        ],
        method=TASK_SCORES,
        data=table,
        tables=("learning_curves", "task_scores"),
    )


def _seed_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, lowest and highest seed at each point of a line."""
    frame = _thinned(frame.assign(point=frame.groupby(["series", "seed"]).cumcount()))
    lines: Any = frame.groupby(["series", "point"], sort=False)
    table = lines.agg(
        source_tokens=("source_tokens", "mean"),
        update=("step", "mean"),
        value=("value", "mean"),
        low=("value", "min"),
        high=("value", "max"),
        seeds=("seed", "nunique"),
    )
    return table.reset_index()


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `_POINTS` points a line, evenly spread over the logarithmic axis: means of those they stand for."""
    num = int(frame["point"].max()) + 1
    if num <= _POINTS:
        return frame
    ends = np.unique(np.geomspace(1, num, _POINTS).round().astype(int)) - 1
    cells = frame.assign(point=np.searchsorted(ends, frame["point"]))
    lines: Any = cells.groupby(["series", "seed", "point"], sort=False)
    return lines.agg(
        source_tokens=("source_tokens", "max"), step=("step", "max"), value=("value", "mean")
    ).reset_index()


def _unigram(scores: pd.DataFrame) -> pd.DataFrame:
    losses = scores[(scores["metric"] == "loss") & scores["trained"]]
    return losses.groupby("series", as_index=False)["baseline"].mean()


def _sentence(table: pd.DataFrame, series: list[Series]) -> str:
    parts = []
    for one in series:
        own = table[table["series"] == one.key].sort_values("source_tokens")
        first, last, before = (float(own["value"].iloc[at]) for at in (0, -1, _half(own)))
        parts.append(
            f"{one.label} from {number(first)} to {number(last)} nats per token "
            f"(the last half of its tokens brought {number(max(before - last, 0.0))})"
        )
    return f"Training loss fell: {listed(parts)}."


def _words(table: pd.DataFrame, series: list[Series]) -> str:
    """Which loss fell by the largest part, and which was still falling most at the end."""
    falls, late = [], []
    for one in series:
        own = table[table["series"] == one.key].sort_values("source_tokens")
        first, last, before = (float(own["value"].iloc[at]) for at in (0, -1, _half(own)))
        falls.append(Candidate(f"in {one.label}", plain(first - last)))
        if first > last:
            late.append(Candidate(f"in {one.label}", plain(round(100 * max(before - last, 0.0) / (first - last)))))
    fall, end = both_extremes(falls, "nats per token"), extreme(late)
    if not fall:
        return ""
    much = ""
    if end:
        part = f"{number(end.candidate.estimate.value, 0)}%, {end.candidate.name}"
        much = f"; the last half of the tokens brought at most {part}"
    return sentence(f"the fall of the training loss is {fall}{much}")


def _half(own: pd.DataFrame) -> int:
    """Position of the last point in the first half of the tokens."""
    return max(int((own["source_tokens"] <= own["source_tokens"].max() / 2).sum()) - 1, 0)


def _chart(table: pd.DataFrame, series: list[Series]) -> dict[str, Any]:
    table = table.assign(name=table["series"].map({one.key: one.label for one in series}))
    low, high = float(table["source_tokens"].min()), float(table["source_tokens"].max())
    span = _span(table)
    log = {"type": "log", "zero": alt.Undefined, "ticks": 6}
    reach = [low, high * _LABEL_ROOM]
    at = {
        "x": alt.X(**amount("source_tokens", "source tokens read", reach, format="~s", **log)),
        "y": alt.Y(**amount("value", "training loss (nats per token)", span, **log)),
    }
    look = looks_of(series)
    tooltip = tips("name:N|model", "update:Q|updates|,.0f", "source_tokens:Q|source tokens|,.0f", "value:Q|loss|.3f")
    ends = _apart(table.loc[table.groupby("series")["source_tokens"].idxmax()], span)
    references = ends.dropna(subset=["baseline"]).sort_values("baseline", ascending=False)
    baseline = with_field(at["y"], "baseline")
    names = alt.Chart(ends).mark_text(align="left", dx=6, limit=110, **NAME)
    note = {"align": "left", "baseline": "bottom", "dy": -3, "color": "var(--soft)", "fontSize": 10.5}
    layers = [
        alt.Chart(references).mark_rule(**CONTROL).encode(y=baseline, opacity=lit()),
        *lines(table, at, look, size=0, touch=300, tooltip=tooltip),
        names.encode(
            x=at["x"], y=with_field(at["y"], "at"), text=alt.Text("name:N"), color=look["color"], opacity=lit(1.0, 0.25)
        ),
        alt.Chart(references.head(1))
        .mark_text(fontStyle="italic", **note)
        .encode(x=alt.XValue(4), y=baseline, text=alt.TextValue("unigram frequencies")),
    ]
    return finished(layers, HEIGHT)


def _apart(ends: pd.DataFrame, span: list[float]) -> pd.DataFrame:
    """The ends of the lines with the height `at` of their names, moved apart where they would overlap."""
    low, high = (math.log(value) for value in span)
    gap = LABEL_GAP / HEIGHT * (high - low)
    return ends.assign(at=[math.exp(at) for at in spread([math.log(value) for value in ends["value"]], gap, high)])


def _span(table: pd.DataFrame) -> list[float]:
    values = table[["low", "high", "baseline"]].stack()
    return [0.95 * float(values.min()), 1.05 * float(values.max())]
