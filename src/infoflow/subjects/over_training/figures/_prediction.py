"""What a language model has learned to predict: first from short contexts, then from everything before."""

import math
from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Method, Panel, PanelGroup
from infoflow.report._in_time import ends_words
from infoflow.report._numbers import listed, number
from infoflow.report.forms._chart import amount, color_of, finished, lit, tips
from infoflow.report.forms._lines import folded
from infoflow.report.forms._marks import draw, filtered, flattened
from infoflow.report.forms._over_time import TOUCH
from infoflow.report.forms._span import span
from infoflow.report.forms._time_axis import NOW

from ..measures import IN_CONTEXT_LEARNING, LOSS_BY_POSITION, NGRAM_AGREEMENT
from ._course import CheckpointTables, course_lines, means, notes
from ._layers import MEASURES_TEMPLATE, slug

NGRAMS = Method(
    id="ngram-agreement",
    title="n-grams and context",
    text="""
    <i>Q<sub>n</sub></i>: n-gram models of the training corpus in the model's own tokens, with absolute discounting by
    0.75 and interpolation. KL is the mean divergence over positions between <i>Q<sub>n</sub></i> and the model's
    predictions <i>P<sub>t</sub></i>. In-context gain: <i>L<sub>i</sub></i> − <i>L<sub>j</sub></i>, the mean loss of
    tokens around position <i>i</i> minus that around <i>j</i>; it is positive where later tokens are easier. Repeat
    gain: the loss in the first copy of repeated random tokens minus that in later copies. After Olsson et al. (2022),
    whose score has the opposite sign.
    """,
)
_ORDERS = {1: "unigrams", 2: "bigrams", 3: "trigrams"}
_GAINS = {"gain": "in-context gain", "repeat_gain": "gain by repetition"}
_TITLES = {
    "kl_from_ngram": "KL(Q‖P)",
    "kl_to_ngram": "KL(P‖Q)",
    "loss_on_samples": "loss on samples of Q",
}
_LOOK = {"height": 210, "room": 0.26}  # room for line names, equal in all panels


def _agreement(course: CheckpointTables) -> Drawn | None:
    table, gains = _ngrams(course), _gains(course)
    if table.empty and gains.empty:
        return None
    beside = _gain_panels(course, gains)
    names = sorted(set(table["measure"]), key=_rank) if len(table) else []
    groups = [_group(course, table[table["measure"] == name], str(name), beside) for name in names]
    if not groups:
        groups = [PanelGroup(id="gain", label="gain", note="", scale=("", ""), panels=beside)]
    data = pd.concat([frame for frame in (table, gains) if len(frame)], ignore_index=True)
    return Drawn(
        data=data,
        panels=groups[0].panels,
        answer=[*_minimum_sentences(course, table), *_gain_sentences(course, gains)],
        caption=f"{notes(course, data)}{_corpus_note(course)}",
        payload={"metrics": groups},
    )


def _ngrams(course: CheckpointTables) -> pd.DataFrame:
    frame = course[NGRAM_AGREEMENT.name]
    if frame.empty:
        return frame
    frame = frame if "context" in frame else frame.assign(context="before")
    lines = [
        f"{ngrams(int(order))}{', next' if side == 'after' else ''}"  # models that see the next token
        for order, side in zip(frame["order"], frame["context"], strict=True)
    ]
    return means(frame.assign(order=frame["order"].astype(int), line=lines), ["measure", "order", "line"])


def ngrams(order: int) -> str:
    """Name of n tokens in the plural."""
    return _ORDERS.get(order, f"{order}-grams")


def _gains(course: CheckpointTables) -> pd.DataFrame:
    """One row per gain: from a column `measure`, or from the columns `gain` and `repeat_gain`."""
    frame = course[IN_CONTEXT_LEARNING.name]
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
    frame = course[NGRAM_AGREEMENT.name]
    return f" n-gram counts are from {listed(sorted(set(map(str, frame['corpus']))))}." if "corpus" in frame else ""


def _group(course: CheckpointTables, table: pd.DataFrame, name: str, beside: list[Panel]) -> PanelGroup:
    low, high = float(table[["low", "value"]].min().min()), float(table[["high", "value"]].max().max())
    words = _title(name)
    y = amount("y", "value", f"{words} (nats)", (min(low, 0.0), high * 1.03), ticks=5)
    kinds = list(dict.fromkeys(table.sort_values(["order", "line"])["line"]))
    panels = [
        Panel(
            spec=course_lines(course, own, y, "value:Q|nats|.3f", kinds, **_LOOK),  # type: ignore[arg-type]
            title=f"{series.label}: n-grams",
        )
        for series, own in course.each(table)
    ]
    return PanelGroup(id=slug(words), label=words, note=f"n-grams: {words}.", scale=("", ""), panels=[*panels, *beside])


def _rank(measure: str) -> tuple[bool, str]:
    """The distance of counts from the model comes first: it measures what the model lacks of them."""
    return not _title(measure).startswith("KL(Q"), _title(measure)


def _title(measure: str) -> str:
    return _TITLES.get(measure, measure.replace("_", " "))


def _by_gain(gains: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    if gains.empty:
        return []
    groups = gains.groupby("measure", sort=False)
    return [(_GAINS.get(str(name), str(name).replace("_", " ")), own) for name, own in groups]


def _gain_panels(course: CheckpointTables, gains: pd.DataFrame) -> list[Panel]:
    panels = []
    for name, own in _by_gain(gains):
        y = amount("y", "value", "nats easier", span(own[["low", "value", "high", "baseline"]], 0.0), ticks=5)
        control = own[["series", "update", "baseline"]].dropna().rename(columns={"baseline": "value"})
        chart = course_lines(course, own, y, "value:Q|nats|.3f", control=control, **_LOOK)  # type: ignore[arg-type]
        panels.append(Panel(spec=chart, title=name))
    return panels


def _minimum_sentences(course: CheckpointTables, table: pd.DataFrame) -> list[str]:
    """When each model is most similar to n-grams, by order."""
    if table.empty:
        return []
    first = table[table["measure"] == min(set(table["measure"]), key=_rank)]
    parts = []
    for series, own in course.each(first):
        lowest = own.loc[own.groupby("line", sort=False)["value"].idxmin()].sort_values("order")
        parts.append(
            f"{series.label} {listed([f'{row.line} at update {row.update:,}' for row in lowest.itertuples()])}"
        )
    return [f"Closest to n-grams of the corpus ({_title(str(first['measure'].iloc[0]))}): {'; '.join(parts)}."]


def _gain_sentences(course: CheckpointTables, gains: pd.DataFrame) -> list[str]:
    told = []
    for name, frame in _by_gain(gains):
        curves = [(series.label, own.sort_values("update")["value"]) for series, own in course.each(frame)]
        parts = [f"{label} {ends_words(curve, 'nats')}" for label, curve in curves]
        told.append(f"{name[:1].upper()}{name[1:]}: {listed(parts)}.")
    return told


def _positions(course: CheckpointTables) -> Drawn | None:
    frame = course[LOSS_BY_POSITION.name]
    if frame.empty:
        return None
    table, parts = means(frame, ["position"]), []
    for series, own in course.each(table):
        last = own[own["update"] == own["update"].max()].sort_values("position")["value"]
        quarter = max(len(last) // 4, 1)
        early, late = (number(float(part.mean())) for part in (last.head(quarter), last.tail(quarter)))
        parts.append(f"{series.label} {early} nats on the first quarter of positions, {late} on the last")
    return Drawn(
        data=table,
        panels=[Panel(spec=_position_chart(course, table))],
        answer=[f"At the end of training: {listed(parts)}."],
        caption=f"{notes(course, table)} Pale: the first and the last checkpoint.",
    )


def _position_chart(course: CheckpointTables, table: pd.DataFrame) -> dict[str, Any]:
    rows, lines = table[["series", "update", "position", "value"]].round({"value": 3}), course.series(table)
    at = {
        "x": amount("x", "position", "position of the token", format="d", zero=None),
        "y": amount("y", "value", "loss (nats per token)", span(rows["value"]), ticks=6),
        "color": color_of(lines),
    }
    ends = rows["update"].isin([rows["update"].min(), rows["update"].max()])
    grouped = rows.groupby(["series", "update"], sort=False)[["position", "value"]].agg(list).reset_index()
    still, now = folded(rows[ends], ["series", "update"]), flattened(filtered(grouped, NOW), ["position", "value"])
    told = tips("series:N|model", "position:Q", "value:Q|loss|.3f")
    layers = [
        draw("line", still, at, strokeWidth=1.2, strokeDash=[2, 3], detail="update:N", opacity=lit(0.5)),
        draw("line", now, at, strokeWidth=2.2, opacity=lit()),
        draw("point", now, at, TOUCH, size=120, tooltip=told),
    ]
    return finished(layers, 230, **course.axis.parameters([line.key for line in lines]))


AGREEMENT = DeclaredFigure(
    name="over-training/ngrams",
    id="ngrams-over-training",
    question="Do models learn frequencies first, then short contexts, then long ones?",
    how_to_read=(
        "Across: training, on the same axis in all panels. n-grams: how far the model's predictions are from "
        "n-gram predictions; the model was closest to them at the lowest point of the line. A line that falls "
        "and rises again is a stage that the model passed through.",
        "Gain: how much easier later tokens of a text are than early ones; dashed grey: the same for tokens "
        "whose context cannot help. It would be surprising if the gain came before the bigrams.",
    ),
    method=NGRAMS,
    tables=(NGRAM_AGREEMENT.at_checkpoints, IN_CONTEXT_LEARNING.at_checkpoints),
    findings=("time:T-4", "time:T-7", "time:T-8", "time:T-19"),
    template=MEASURES_TEMPLATE,
    payload={"key": "ngrams"},
    draw=_agreement,
)
POSITIONS = DeclaredFigure(
    name="over-training/loss-by-position",
    id="loss-by-position",
    question="How much context does the model use?",
    how_to_read=(
        "Across: how many tokens the model has already read. Up: the mean loss of the next token, at the "
        "checkpoint chosen with the slider. Where a line is flat, more context does not help; where it falls, it "
        "does.",
    ),
    method=NGRAMS,
    tables=(LOSS_BY_POSITION.at_checkpoints,),
    findings=("time:T-7",),
    draw=_positions,
)
