"""Stages of learning to translate, and how much of a prediction comes from the source."""

from typing import Any

import pandas as pd

from .._figure import Method, Panel, ReportFigure
from .._numbers import listed, number
from .._series import Series
from ..forms._chart import amount, tips
from ..forms._lines import LineKind, looks_of
from ..forms._over_time import time_lines
from ._course import CheckpointTables, band_note, checkpoints_note, means

TRANSLATION = Method(
    id="translation-stages",
    title="Stages of translation",
    text="""
    Greedy translations of fixed sentences at each checkpoint. LM score: mean log-probability per token under n-gram
    models of the target side. FRS: fuzzy reordering score, 1 − jumps / (<i>n</i> + 1) of the aligned source words in
    target order (A; B without start and end), by one aligner that knows no model. Source share: relevance of the source
    tokens, as a share of source and prefix, for the prediction at each target position, under teacher forcing. After
    Voita, Sennrich and Titov (2021). Shares depend on the rule: read none as absolute.
    """,
)
_FAMILIES = (
    ("lm_score", "as a language model of the target", "LM score (nats)"),
    ("quality", "quality", "BLEU, chrF (share of their end)"),
    ("order", "word order", "share"),
    ("unigram", "words by how frequent they are", "unigram precision"),
)
_NAMES = {"frs_a": "FRS (A)", "frs_b": "FRS (B)", "tau_share": "τ share", "bleu": "BLEU", "chrf": "chrF"}
_DASHES = ((1, 0), (7, 3), (2, 3), (9, 3, 2, 3), (4, 2), (12, 4))
_HEIGHT = 180


def translation_figures(course: CheckpointTables) -> list[ReportFigure]:
    """The stages, and the source's share."""
    return [figure for figure in (_stages_figure(course), _source_figure(course)) if figure is not None]


def _stages_figure(course: CheckpointTables) -> ReportFigure | None:
    frame = course["translation_stages"]
    if frame.empty:
        return None
    rows = frame.assign(family=frame["measure"].map(_family), line=[_line(row) for row in frame.to_dict("records")])
    table = means(rows.dropna(subset="value"), ["family", "line", "measure"])
    table = pd.concat([_scaled(own) if name == "quality" else own for name, own in table.groupby("family", sort=False)])
    panels = []
    for name, title, unit in _FAMILIES:
        for series, own in course.each(table[table["family"] == name]):
            panels.append(_panel(course, own, series, title, unit))
    others = table[~table["family"].isin([family[0] for family in _FAMILIES])]
    for measure, own in others.groupby("measure", sort=False):
        for series, rows in course.each(own):
            panels.append(_panel(course, rows, series, str(measure).replace("_", " "), ""))
    return ReportFigure(
        id="translation-stages",
        question="How does a model learn to translate: words, fluency, order?",
        answer=[_stage_sentence(table)],
        panels=panels,
        caption=f"{checkpoints_note(course, table)} {band_note(table)}{_degenerate(frame)}",
        how_to_read=[
            "Four views of the same translations. As a language model: how likely they are under n-grams of the target "
            "language, whatever the source says; lines that overshoot and come back show a stage of fluent text that "
            "does not translate. Quality: BLEU and chrF, each as a share of its end.",
            "Word order: 1 means the order of the source. Order that still moves after quality has become flat was "
            "learned last.",
        ],
        method=TRANSLATION,
        data=table,
        tables=("translation_stages_over_training",),
        findings=("time:T-11", "time:T-12"),
    )


def _family(measure: object) -> str:
    name = str(measure).lower()
    for family, words in (
        ("lm_score", ("lm_score", "lm score")),
        ("quality", ("bleu", "chrf")),
        ("order", ("frs", "tau", "monoton", "reorder")),
        ("unigram", ("unigram", "precision")),
    ):
        if any(word in name for word in words):
            return family
    return name


def _line(row: dict[str, Any]) -> str:
    """What a line is called: the order of its n-grams, the ranks of its words, or the measure."""
    if row.get("rank_bin"):
        return f"ranks {row['rank_bin']}"
    if _family(row["measure"]) == "lm_score" and row.get("n"):
        return f"{int(row['n'])}-grams"
    return _NAMES.get(str(row["measure"]).lower(), str(row["measure"]).replace("_", " "))


def _scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Each line as a share of its last value."""
    last = table.sort_values("update").groupby(["series", "line"])["value"].transform("last")
    last = last.where(last.abs() > 0, 1.0)
    return table.assign(**{name: table[name] / last for name in ("value", "low", "high")})


def _panel(course: CheckpointTables, rows: pd.DataFrame, series: Series, title: str, unit: str) -> Panel:
    names = list(dict.fromkeys(rows["line"]))
    lines = [
        LineKind(key=str(name), label=str(name), dash=_DASHES[place % len(_DASHES)], shape="circle", mark="")
        for place, name in enumerate(names)
    ]
    low, high = float(rows[["low", "value"]].min().min()), float(rows[["high", "value"]].max().max())
    margin = 0.06 * (high - low) or 0.1
    ends = rows.loc[rows.groupby("line")["update"].idxmax()]
    chart = time_lines(
        course.axis,
        rows[["series", "line", "update", "value", "low", "high", "seeds"]].round({"value": 4, "low": 4, "high": 4}),
        amount("value", unit or None, (low - margin, high + margin), ticks=4),
        {**looks_of(lines, "line", series.color), "detail": "line:N"},
        height=_HEIGHT,
        names=ends[["series", "line", "update", "value"]].assign(text=ends["line"]),
        room=0.3,
        tooltip=tips("line:N|of", "update:Q||,", "value:Q||.3f", "low:Q||.3f", "high:Q||.3f"),
    )
    return Panel(spec=chart, title=f"{series.label}: {title}")


def _stage_sentence(table: pd.DataFrame) -> str:
    parts = []
    for line, own in table.groupby("line", sort=False):
        curve = own.groupby("update")["value"].mean()
        parts.append(f"{line} at update {int(curve.idxmax()):,}")
    return f"Highest at: {listed(parts)}."


def _degenerate(frame: pd.DataFrame) -> str:
    if "degenerate" not in frame or not float(frame["degenerate"].max()) > 0:
        return ""
    own = frame[frame["degenerate"] > 0]
    return (
        f" Up to update {int(own['update'].max()):,} some outputs were empty or one repeated token; they have no order."
    )


def _source_figure(course: CheckpointTables) -> ReportFigure | None:
    frame = course["source_contribution"]
    if frame.empty:
        return None
    later = frame[frame["position"] >= 1] if "position" in frame else frame
    parts = []
    for name, label in (
        ("share", "share of the source"),
        ("entropy", "spread over source tokens (nats)"),
        ("kl", "KL to the end (nats)"),
    ):
        if name in later and len(later[name].dropna()):
            own = means(
                later.drop(columns=["value", "low", "high"], errors="ignore").rename(columns={name: "value"}), ["rule"]
            )
            parts.append(own.assign(measure=label, line=own["rule"].astype(str)))
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    panels = [
        _panel(course, rows, series, str(measure), "")
        for measure, own in table.groupby("measure", sort=False)
        for series, rows in course.each(own)
    ]
    return ReportFigure(
        id="source-contribution",
        question="Does translation look at its source more, or less, as it learns?",
        answer=[_source_sentence(table)],
        panels=panels,
        caption=f"{checkpoints_note(course, table)} {band_note(table)} Means over target positions from the second on: "
        "at the first, only the start symbol could matter beside the source.",
        how_to_read=[
            "Up: how much of the relevance for the next token lies on source tokens rather than on the tokens that "
            "were already produced. A line for each rule by which relevance is given back: what only one rule "
            "shows is a "
            "property of that rule.",
        ],
        method=TRANSLATION,
        data=table,
        tables=("source_contribution_over_training",),
        findings=("time:T-13", "time:T-14"),
    )


def _source_sentence(table: pd.DataFrame) -> str:
    parts = []
    shares = table[table["measure"] == "share of the source"]
    for rule, own in shares.groupby("rule", sort=False):
        curve = own.groupby("update")["value"].mean()
        parts.append(
            f"by {rule} from {number(curve.iloc[0])} to {number(curve.iloc[-1])}, lowest {number(curve.min())} "
            f"at update {int(curve.idxmin()):,}"
        )
    return f"Source share: {listed(parts)}." if parts else ""
