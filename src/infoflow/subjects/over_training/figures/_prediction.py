"""What a model has learned to predict: from short contexts, from all preceding tokens, and from a source."""

import re
from typing import Any

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, PanelGroup
from infoflow.report._in_words import ends_words, listed, number
from infoflow.report.forms._chart import amount, color_of, finished, lit, tips
from infoflow.report.forms._lines import folded
from infoflow.report.forms._marks import draw, filtered, flattened, span
from infoflow.report.forms._over_time import NOW, TOUCH

from ..measures import IN_CONTEXT_LEARNING, LOSS_BY_POSITION, NGRAM_AGREEMENT, SOURCE_CONTRIBUTION, TRANSLATION_STAGES
from ._course import CheckpointTables, course_lines, means, notes
from ._layers import MEASURES_TEMPLATE

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
_TITLES = {"kl_from_ngram": "KL(Q‖P)", "kl_to_ngram": "KL(P‖Q)", "loss_on_samples": "loss on samples of Q"}
_LOOK = {"height": 210, "room": 0.26}  # space for line names, equal in all panels


def _agreement(course: CheckpointTables) -> Drawn | None:
    table, gains = _ngrams(course), course[IN_CONTEXT_LEARNING.name]
    if table.empty and gains.empty:
        return None
    if len(gains):
        gains = means(gains.dropna(subset="value"), ["measure"], ("value", "baseline"))
    gain_panels = _gain_panels(course, gains)
    names = _measures(table)
    groups = [_group(course, table[table["measure"] == name], name, gain_panels) for name in names]
    if not groups:
        groups = [PanelGroup(id="gain", label="gain", note="", scale=("", ""), panels=gain_panels)]
    data = pd.concat([frame for frame in (table, gains) if len(frame)], ignore_index=True)
    corpora = listed(sorted(set(course[NGRAM_AGREEMENT.name]["corpus"]))) if len(table) else ""
    return Drawn(
        data=data,
        panels=groups[0].panels,
        answer=[*_minimum_sentences(course, table), *_gain_sentences(course, gains)],
        caption=notes(course, data) + (f" n-gram counts are from {corpora}." if corpora else ""),
        payload={"metrics": groups},
    )


def _ngrams(course: CheckpointTables) -> pd.DataFrame:
    frame = course[NGRAM_AGREEMENT.name]
    if frame.empty:
        return frame
    lines = [
        f"{ngrams(int(order))}{', next' if side == 'after' else ''}"  # only for models that see the next token
        for order, side in zip(frame["order"], frame["context"], strict=True)
    ]
    return means(frame.assign(line=lines), ["measure", "order", "line"])


def _measures(table: pd.DataFrame) -> list[str]:
    """The measures of a table, first KL(Q||P), which is what the model has not yet learned of the n-gram counts."""
    return [name for name in _TITLES if len(table) and name in set(table["measure"])]


def ngrams(order: int) -> str:
    """Plural name of the n-grams of one order, such as `bigrams`."""
    return _ORDERS.get(order, f"{order}-grams")


def _group(course: CheckpointTables, table: pd.DataFrame, name: str, gain_panels: list[Panel]) -> PanelGroup:
    low, high = float(table[["low", "value"]].min().min()), float(table[["high", "value"]].max().max())
    words = _TITLES[name]
    y = amount("y", "value", f"{words} (nats)", (min(low, 0.0), high * 1.03), ticks=5)
    kinds = list(dict.fromkeys(table.sort_values(["order", "line"])["line"]))
    panels = []
    for series, own in course.each(table):
        chart = course_lines(course, own, y, "value:Q|nats|.3f", kinds, **_LOOK)  # type: ignore[arg-type]
        panels.append(Panel(spec=chart, title=f"{series.label}: n-grams"))
    id = "-".join(re.findall("[a-z]+", words.lower()))
    return PanelGroup(id=id, label=words, note=f"n-grams: {words}.", scale=("", ""), panels=[*panels, *gain_panels])


def _by_gain(gains: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    if gains.empty:
        return []
    return [(_GAINS[str(name)], own) for name, own in gains.groupby("measure", sort=False)]


def _gain_panels(course: CheckpointTables, gains: pd.DataFrame) -> list[Panel]:
    panels = []
    for name, own in _by_gain(gains):
        y = amount("y", "value", "nats easier", span(own[["low", "value", "high", "baseline"]], 0.0), ticks=5)
        control = own[["series", "update", "baseline"]].dropna().rename(columns={"baseline": "value"})
        chart = course_lines(course, own, y, "value:Q|nats|.3f", control=control, **_LOOK)  # type: ignore[arg-type]
        panels.append(Panel(spec=chart, title=name))
    return panels


def _minimum_sentences(course: CheckpointTables, table: pd.DataFrame) -> list[str]:
    if table.empty:
        return []
    first, parts = _measures(table)[0], []
    for series, own in course.each(table[table["measure"] == first]):
        lowest = own.loc[own.groupby("line", sort=False)["value"].idxmin()].sort_values("order")
        stated = [f"{row.line} at update {row.update:,}" for row in lowest.itertuples()]
        parts.append(f"{series.label} {listed(stated)}")
    return [f"Closest to n-grams of the corpus ({_TITLES[first]}): {'; '.join(parts)}."]


def _gain_sentences(course: CheckpointTables, gains: pd.DataFrame) -> list[str]:
    stated = []
    for name, frame in _by_gain(gains):
        parts = [
            f"{series.label} {ends_words(own.sort_values('update')['value'], 'nats')}"
            for series, own in course.each(frame)
        ]
        stated.append(f"{name[:1].upper()}{name[1:]}: {listed(parts)}.")
    return stated


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
    stated = tips("series:N|model", "position:Q", "value:Q|loss|.3f")
    layers = [
        draw("line", still, at, strokeWidth=1.2, strokeDash=[2, 3], detail="update:N", opacity=lit(0.5)),
        draw("line", now, at, strokeWidth=2.2, opacity=lit()),
        draw("point", now, at, TOUCH, size=120, tooltip=stated),
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


# Stages of learning to translate, and how much of a prediction comes from the source.

TRANSLATION = Method(
    id="translation-stages",
    title="Stages of translation",
    text="""
    Greedy translations of fixed sentences at each checkpoint. LM score: mean log-probability per token under n-gram
    models of the target side. FRS: fuzzy reordering score, 1 − jumps / (<i>n</i> + 1) of the aligned source words in
    target order (A; B without start and end), with one aligner that is independent of all models. Source share: the
    relevance of the source tokens for the prediction at each target position, as a share of source and prefix, under
    teacher forcing. After Voita, Sennrich and Titov (2021). Shares depend on the attribution rule, so none is
    absolute.
    """,
)
_FAMILIES = {
    "lm_score": ("as a language model of the target", "LM score (nats)"),
    "quality": ("quality", "BLEU, chrF (share of final value)"),
    "order": ("word order", "share"),
    "unigram": ("words by frequency", "unigram precision"),
    "degenerate": ("degenerate", ""),
    "word_by_word": ("word by word", ""),
}
"""Measures that share a panel: its title and its axis."""
_FAMILY = {"bleu": "quality", "chrf": "quality", "frs_a": "order", "frs_b": "order", "tau_share": "order",
           "unigram_precision": "unigram"}  # fmt: skip
_NAMES = {"frs_a": "FRS (A)", "frs_b": "FRS (B)", "tau_share": "τ share", "bleu": "BLEU", "chrf": "chrF"}
_OF_SOURCE = {
    "share": "share of the source",
    "entropy": "spread over source tokens (nats)",
    "prefix_entropy": "spread over the prefix (nats)",
}
_HEIGHT = 180
_LATER = -1  # position of the mean over steps from 1


def _panels(course: CheckpointTables, table: pd.DataFrame, by: str, titles: dict[str, tuple[str, str]]) -> list[Panel]:
    """One panel per value of a column (title and unit) and model."""
    found = []
    for name, (title, unit) in titles.items():
        for series, own in course.each(table[table[by] == name]):
            y = amount("y", "value", unit or None, span(own[["low", "value", "high"]], margin=0.06), ticks=4)
            chart = course_lines(course, own, y, height=_HEIGHT, room=0.3)
            found.append(Panel(spec=chart, title=f"{series.label}: {title}"))
    return found


def _stages(course: CheckpointTables) -> Drawn | None:
    frame = course[TRANSLATION_STAGES.name]
    if frame.empty:
        return None
    families = [_FAMILY.get(name, name) for name in frame["measure"]]
    rows = frame.assign(family=families, line=[_line(row) for row in frame.to_dict("records")])
    table = means(rows.dropna(subset="value"), ["family", "line", "measure"])
    table = pd.concat([_scaled(own) if name == "quality" else own for name, own in table.groupby("family", sort=False)])
    highest = [
        f"{line} at update {int(own.groupby('update')['value'].mean().idxmax()):,}"
        for line, own in table.groupby("line", sort=False)
    ]
    return Drawn(
        data=table,
        panels=_panels(course, table, "family", _FAMILIES),
        answer=[f"Highest values: {listed(highest)}."],
        caption=notes(course, table),
    )


def _line(row: dict[str, Any]) -> str:
    """Label of a line: the order of its n-grams, the ranks of its words, or the measure."""
    if row["rank_bin"]:
        return f"ranks {row['rank_bin']}"
    if row["measure"] == "lm_score":
        return f"{row['n']}-grams"
    return _NAMES.get(row["measure"], row["measure"].replace("_", " "))


def _scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Each line as a share of its last value."""
    last = table.sort_values("update").groupby(["series", "line"])["value"].transform("last")
    last = last.where(last.abs() > 0, 1.0)
    return table.assign(**{name: table[name] / last for name in ("value", "low", "high")})


def _source(course: CheckpointTables) -> Drawn | None:
    frame = course[SOURCE_CONTRIBUTION.name]
    if frame.empty:
        return None
    later = frame[frame["position"] == _LATER]
    table = means(later.assign(line=later["rule"]), ["measure", "line"])
    stated = []
    for rule, own in table[table["measure"] == "share"].groupby("line", sort=False):
        curve = own.groupby("update")["value"].mean()
        stated.append(f"by {rule} {ends_words(curve)}, lowest at update {int(curve.idxmin()):,}")
    return Drawn(
        data=table,
        panels=_panels(course, table, "measure", {name: (label, "") for name, label in _OF_SOURCE.items()}),
        answer=[f"Source share: {listed(stated)}."],
        caption=f"{notes(course, table)} Means over target positions from the second on: at the first, the only "
        "prefix is the start symbol.",
    )


STAGES = DeclaredFigure(
    name="over-training/translation",
    id="translation-stages",
    question="How does a model learn to translate: words, fluency, order?",
    how_to_read=(
        "Four views of the same translations. As a language model: how likely they are under n-grams of the "
        "target language, regardless of the source; a line that overshoots and comes back shows a stage of "
        "fluent text that does not translate. Quality: BLEU and chrF, each as a share of its final value.",
        "Word order: 1 means the order of the source. If it still changes after quality has flattened, word "
        "order was learned last.",
    ),
    method=TRANSLATION,
    tables=(TRANSLATION_STAGES.at_checkpoints,),
    findings=("time:T-11", "time:T-12"),
    draw=_stages,
)
SOURCE = DeclaredFigure(
    name="over-training/source-contribution",
    id="source-contribution",
    question="Does translation rely more or less on its source as it learns?",
    how_to_read=(
        "Up: how much of the relevance for the next token lies on source tokens rather than on the tokens "
        "already produced. One line per attribution rule: what only one rule shows is a property of that rule.",
    ),
    method=TRANSLATION,
    tables=(SOURCE_CONTRIBUTION.at_checkpoints,),
    findings=("time:T-13", "time:T-14"),
    draw=_source,
)
