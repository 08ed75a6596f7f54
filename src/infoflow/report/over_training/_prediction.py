"""What a language model has learned to predict: short contexts first, and then from all that came before."""

import math
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Method, Panel, PanelGroup, ReportFigure
from .._numbers import listed, number
from .._series import Series
from ..forms._chart import CONTROL, amount, color_of, finished, lit, tips
from ..forms._lines import LineKind, looks_of
from ..forms._over_time import time_lines
from ..forms._time_axis import NOW, TimeAxis, timed
from ._course import CheckpointTables, band_note, checkpoints_note, means
from ._layers import MEASURES_TEMPLATE, slug

NGRAMS = Method(
    id="ngram-agreement",
    title="n-grams and context",
    text="""
    <i>Q<sub>n</sub></i>: n-gram models of the training corpus in the model's own tokens, absolute discounting by .75
    with interpolation; KL is the mean over positions of the divergence between <i>Q<sub>n</sub></i> and what the model
    <i>P<sub>t</sub></i> predicts. In-context gain: <i>L<sub>i</sub></i> − <i>L<sub>j</sub></i>, the mean loss of tokens
    around position <i>i</i> less that around <i>j</i>, at or above 0 where later tokens are easier; repeat gain: the
    loss in the first copy of repeated random tokens less that in later ones. After Olsson et al. (2022), whose score
    has the other sign.
    """,
)
_ORDERS = {1: "unigrams", 2: "bigrams", 3: "trigrams"}
_DASHES = ((1, 0), (7, 3), (2, 3), (9, 3, 2, 3), (4, 2))
_GAINS = {"gain": "in-context gain", "repeat_gain": "gain by repetition"}
_HEIGHT = 210
_ROOM = 0.26  # for the names of lines, as a share of the axis: the same in all panels


def prediction_figures(course: CheckpointTables) -> list[ReportFigure]:
    """Agreement with n-grams and gains by context over training, and the loss by position at one step."""
    return [figure for figure in (_agreement_figure(course), _position_figure(course)) if figure is not None]


def _agreement_figure(course: CheckpointTables) -> ReportFigure | None:
    ngrams, gains = _ngrams(course), _gains(course)
    if ngrams.empty and gains.empty:
        return None
    beside = _gain_panels(course, gains)
    names = sorted(set(ngrams["measure"]), key=_rank) if len(ngrams) else []
    groups = [_group(course, ngrams[ngrams["measure"] == name], str(name), beside) for name in names]
    if not groups:
        groups = [PanelGroup(id="gain", label="gain", note="", scale=("", ""), panels=beside)]
    data = pd.concat([frame for frame in (ngrams, gains) if len(frame)], ignore_index=True)
    return ReportFigure(
        id="ngrams-over-training",
        question="Do models learn frequencies first, then short contexts, then long ones?",
        answer=[*_minimum_sentences(course, ngrams), *_gain_sentences(course, gains)],
        panels=groups[0].panels,
        caption=f"{checkpoints_note(course, data)} {band_note(data)}{_corpus_note(course)}",
        how_to_read=[
            "Across: training, in all panels on one axis. n-grams: how far the model's predictions are from those of "
            "counts; the lowest point of a line is when the model was most like such counts. A line that falls and "
            "rises again has been passed through on the way to something better.",
            "Gain: how much easier later tokens of a text are than early ones; dashed grey: the same of tokens whose "
            "context cannot help. It would be surprising if the gain came "
            "before the bigrams.",
        ],
        method=NGRAMS,
        data=data,
        tables=("ngram_agreement_over_training", "in_context_learning_over_training"),
        findings=("time:T-4", "time:T-7", "time:T-8", "time:T-19"),
        template=MEASURES_TEMPLATE,
        payload={"metrics": groups, "key": "ngrams"},
    )


def _ngrams(course: CheckpointTables) -> pd.DataFrame:
    frame = course["ngram_agreement"]
    if frame.empty:
        return frame
    frame = frame if "context" in frame else frame.assign(context="before")
    lines = [_line(int(order), str(side)) for order, side in zip(frame["order"], frame["context"], strict=True)]
    return means(frame.assign(order=frame["order"].astype(int), line=lines), ["measure", "order", "line"])


def _line(order: int, side: str) -> str:
    """What the line of n-grams is called: those with the token behind are of models that see it."""
    name = ngrams(order)
    return f"{name}, next" if side == "after" else name


def ngrams(order: int) -> str:
    """What n tokens are called, many of them."""
    return _ORDERS.get(order, f"{order}-grams")


def _gains(course: CheckpointTables) -> pd.DataFrame:
    """A row for each gain: from a column `measure`, or from the columns `gain` and `repeat_gain`."""
    frame = course["in_context_learning"]
    if frame.empty:
        return frame
    if "measure" not in frame:
        columns = [name for name in _GAINS if name in frame]
        parts = [frame.drop(columns=columns).assign(measure=name, value=frame[name]) for name in columns]
        frame = pd.concat(parts, ignore_index=True) if parts else frame.assign(measure="gain")
    frame = frame.dropna(subset="value")
    frame = frame if "baseline" in frame else frame.assign(baseline=math.nan)
    return means(frame, ["measure"], ("value", "baseline"))


def _corpus_note(course: CheckpointTables) -> str:
    frame = course["ngram_agreement"]
    if "corpus" not in frame:
        return ""
    return f" Counts are of {listed(sorted({str(name) for name in frame['corpus']}))}."


def _group(course: CheckpointTables, table: pd.DataFrame, name: str, beside: list[Panel]) -> PanelGroup:
    low, high = float(table[["low", "value"]].min().min()), float(table[["high", "value"]].max().max())
    span = (min(low, 0.0), high * 1.03)
    names = table.sort_values(["order", "line"])["line"]
    lines = _lines(list(dict.fromkeys(names)))
    panels = [
        Panel(spec=_ngram_chart(course.axis, own, series, lines, span, _title(name)), title=f"{series.label}: n-grams")
        for series, own in course.each(table)
    ]
    words = _title(name)
    return PanelGroup(id=slug(words), label=words, note=f"n-grams: {words}.", scale=("", ""), panels=[*panels, *beside])


_TITLES = {
    "kl_from_ngram": "KL(Q‖P)",
    "kl_to_ngram": "KL(P‖Q)",
    "loss_on_samples": "loss on samples of Q",
}


def _rank(measure: str) -> tuple[bool, str]:
    """How far counts are from the model comes first: it counts what the model misses of them."""
    return not _title(measure).startswith("KL(Q"), _title(measure)


def _title(measure: str) -> str:
    return _TITLES.get(measure, measure.replace("_", " "))


def _lines(names: list[str]) -> list[LineKind]:
    return [
        LineKind(key=name, label=name, dash=dash, shape="circle", mark="")
        for name, dash in zip(names, _DASHES * 3, strict=False)
    ]


def _ngram_chart(
    axis: TimeAxis, rows: pd.DataFrame, series: Series, lines: list[LineKind], span: tuple[float, float], title: str
) -> dict[str, Any]:
    rows = rows.round({"value": 4, "low": 4, "high": 4})
    ends = rows.loc[rows.groupby("line")["update"].idxmax()]
    return time_lines(
        axis,
        rows[["series", "line", "update", "value", "low", "high", "seeds"]],
        amount("value", f"{title} (nats)", span, ticks=5),
        looks_of(lines, "line", series.color) | {"detail": "line:N"},
        height=_HEIGHT,
        names=ends[["series", "line", "update", "value"]].assign(text=ends["line"]),
        room=_ROOM,
        tooltip=tips("line:N|n", "update:Q||,", "value:Q|nats|.3f", "low:Q||.3f", "high:Q||.3f"),
    )


def _gain_panels(course: CheckpointTables, gains: pd.DataFrame) -> list[Panel]:
    panels = []
    for measure, own in gains.groupby("measure", sort=False) if len(gains) else ():
        low, high = float(own[["low", "value", "baseline"]].min().min()), float(own[["high", "value"]].max().max())
        margin = 0.05 * (high - low) or 0.1
        series = course.series(own)
        ends = own.loc[own.groupby("series")["update"].idxmax(), ["series", "update", "value"]]
        chart = time_lines(
            course.axis,
            own.round({"value": 4, "low": 4, "high": 4}),
            amount("value", "nats easier", (min(low, 0.0) - margin, high + margin), ticks=5),
            {name: channel for name, channel in looks_of(series).items() if name != "shape"},
            height=_HEIGHT,
            names=ends.assign(text=ends["series"].map({one.key: one.label for one in series})),
            room=_ROOM,
            beneath=_control(course.axis.with_room(_ROOM), own),
            tooltip=tips("series:N|model", "update:Q||,", "value:Q|nats|.3f", "low:Q||.3f", "high:Q||.3f"),
        )
        panels.append(Panel(spec=chart, title=_GAINS.get(str(measure), str(measure).replace("_", " "))))
    return panels


def _control(axis: TimeAxis, gains: pd.DataFrame) -> list[alt.Chart]:
    """The same gain where context cannot help, in dashed grey."""
    known = gains.dropna(subset="baseline")
    if known.empty:
        return []
    y = alt.Y("baseline:Q", axis=None)
    mark = timed(alt.Chart(known[["series", "update", "baseline"]].round(4))).mark_line(**CONTROL)
    return [mark.encode(x=axis.channel(), y=y, detail=alt.Detail("series:N"), opacity=lit(1.0, 0.5))]


def _minimum_sentences(course: CheckpointTables, ngrams: pd.DataFrame) -> list[str]:
    """When each model is most like n-grams, order by order."""
    if ngrams.empty:
        return []
    first = ngrams[ngrams["measure"] == min(set(ngrams["measure"]), key=_rank)]
    parts = []
    for series, own in course.each(first):
        lowest = own.loc[own.groupby("line", sort=False)["value"].idxmin()].sort_values("order")
        told = [f"{row.line} at update {row.update:,}" for row in lowest.itertuples()]
        parts.append(f"{series.label} {listed(told)}")
    return [f"Most like n-grams of the corpus ({_title(str(first['measure'].iloc[0]))}): {'; '.join(parts)}."]


def _gain_sentences(course: CheckpointTables, gains: pd.DataFrame) -> list[str]:
    told = []
    for measure, frame in gains.groupby("measure", sort=False) if len(gains) else ():
        parts = []
        for series, own in course.each(frame):
            ends = own.sort_values("update")["value"]
            parts.append(f"{series.label} from {number(ends.iloc[0])} to {number(ends.iloc[-1])} nats")
        name = _GAINS.get(str(measure), str(measure).replace("_", " "))
        told.append(f"{name[:1].upper()}{name[1:]}: {listed(parts)}.")
    return told


def _position_figure(course: CheckpointTables) -> ReportFigure | None:
    frame = course["loss_by_position"]
    if frame.empty:
        return None
    table = means(frame, ["position"])
    lines = course.series(table)
    return ReportFigure(
        id="loss-by-position",
        question="From how much context does the model predict?",
        answer=[_position_sentence(course, table)],
        panels=[Panel(spec=_position_chart(course.axis, table, lines))],
        caption=f"{checkpoints_note(course, table)} {band_note(table)} Pale: the first and the last checkpoint.",
        how_to_read=[
            "Across: how many tokens the model has read before. Up: the mean loss of the token there, at the "
            "checkpoint that the slider has come to. A flat line uses no more context; a line that falls to the "
            "right does.",
        ],
        method=NGRAMS,
        data=table,
        tables=("loss_by_position_over_training",),
        findings=("time:T-7",),
    )


def _position_sentence(course: CheckpointTables, table: pd.DataFrame) -> str:
    parts = []
    for series, own in course.each(table):
        last = own[own["update"] == own["update"].max()].sort_values("position")
        quarter = max(len(last) // 4, 1)
        early, late = float(last["value"].head(quarter).mean()), float(last["value"].tail(quarter).mean())
        parts.append(
            f"{series.label} {number(early)} nats on the first quarter of positions, {number(late)} on the last"
        )
    return f"At the end of training: {listed(parts)}."


def _position_chart(axis: TimeAxis, table: pd.DataFrame, lines: list[Series]) -> dict[str, Any]:
    table = table.round({"value": 3})
    low, high = float(table["value"].min()), float(table["value"].max())
    margin = 0.05 * (high - low) or 0.1
    x = alt.X(**amount("position", "position of the token", format="d", zero=alt.Undefined))
    at = {"x": x, "y": alt.Y(**amount("value", "loss (nats per token)", [low - margin, high + margin], ticks=6))}
    color = color_of(lines)
    grouped = table.groupby(["series", "update"], sort=False)[["position", "value"]].agg(list).reset_index()
    ends = grouped["update"].isin([grouped["update"].min(), grouped["update"].max()])
    still = alt.Chart(grouped[ends]).transform_flatten(["position", "value"])
    now = alt.Chart(grouped).transform_filter(NOW).transform_flatten(["position", "value"])
    layers = [
        still.mark_line(strokeWidth=1.2, strokeDash=[2, 3]).encode(
            **at, color=color, detail=alt.Detail("update:N"), opacity=lit(0.5)
        ),
        now.mark_line(strokeWidth=2.2).encode(**at, color=color, opacity=lit()),
        now.mark_point(size=120, filled=True).encode(
            **at, opacity=alt.OpacityValue(0), tooltip=tips("series:N|model", "position:Q", "value:Q|loss|.3f")
        ),
    ]
    return finished(layers, 230, **axis.parameters([line.key for line in lines]))
