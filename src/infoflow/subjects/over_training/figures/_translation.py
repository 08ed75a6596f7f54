"""Stages of learning to translate, and how much of a prediction comes from the source."""

from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Method, Panel
from infoflow.report._in_time import ends_words
from infoflow.report._numbers import listed
from infoflow.report.forms._chart import amount
from infoflow.report.forms._span import span

from ..measures import SOURCE_CONTRIBUTION, TRANSLATION_STAGES
from ._course import CheckpointTables, course_lines, means, notes

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
    "lm_score": ("as a language model of the target", "LM score (nats)", ("lm_score", "lm score")),
    "quality": ("quality", "BLEU, chrF (share of their end)", ("bleu", "chrf")),
    "order": ("word order", "share", ("frs", "tau", "monoton", "reorder")),
    "unigram": ("words by frequency", "unigram precision", ("unigram", "precision")),
}
"""Measures that share a panel: its title, its axis, and words in their names."""
_NAMES = {"frs_a": "FRS (A)", "frs_b": "FRS (B)", "tau_share": "τ share", "bleu": "BLEU", "chrf": "chrF"}
_OF_SOURCE = {
    "share": "share of the source",
    "entropy": "spread over source tokens (nats)",
    "kl": "KL to the end (nats)",
}
_HEIGHT = 180


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
    rows = frame.assign(family=frame["measure"].map(_family), line=[_line(row) for row in frame.to_dict("records")])
    table = means(rows.dropna(subset="value"), ["family", "line", "measure"])
    table = pd.concat([_scaled(own) if name == "quality" else own for name, own in table.groupby("family", sort=False)])
    titles = {name: (title, unit) for name, (title, unit, _) in _FAMILIES.items()}
    others = {name: (name.replace("_", " "), "") for name in table["family"] if name not in titles}
    highest = [
        f"{line} at update {int(own.groupby('update')['value'].mean().idxmax()):,}"
        for line, own in table.groupby("line", sort=False)
    ]
    return Drawn(
        data=table,
        panels=_panels(course, table, "family", titles | others),
        answer=[f"Highest values: {listed(highest)}."],
        caption=f"{notes(course, table)}{_degenerate(frame)}",
    )


def _family(measure: object) -> str:
    name = str(measure).lower()
    return next((family for family, (*_, words) in _FAMILIES.items() if any(word in name for word in words)), name)


def _line(row: dict[str, Any]) -> str:
    """Label of a line: the order of its n-grams, the ranks of its words, or the measure."""
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


def _degenerate(frame: pd.DataFrame) -> str:
    if "degenerate" not in frame or not float(frame["degenerate"].max()) > 0:
        return ""
    last = int(frame.loc[frame["degenerate"] > 0, "update"].max())
    return f" Up to update {last:,} some outputs were empty or one repeated token; they have no order."


def _source(course: CheckpointTables) -> Drawn | None:
    frame = course[SOURCE_CONTRIBUTION.name]
    if frame.empty:
        return None
    later = frame[frame["position"] >= 1] if "position" in frame else frame
    parts = []
    for name, label in _OF_SOURCE.items():
        if name in later and len(later[name].dropna()):
            plain = later.drop(columns=["value", "low", "high"], errors="ignore").rename(columns={name: "value"})
            parts.append(means(plain, ["rule"]).assign(measure=label, line=lambda own: own["rule"].astype(str)))
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    told = []
    for rule, own in table[table["measure"] == _OF_SOURCE["share"]].groupby("rule", sort=False):
        curve = own.groupby("update")["value"].mean()
        lowest = f"lowest at update {int(curve.idxmin()):,}"
        told.append(f"by {rule} {ends_words(curve)}, {lowest}")
    return Drawn(
        data=table,
        panels=_panels(course, table, "measure", {label: (label, "") for label in _OF_SOURCE.values()}),
        answer=[f"Source share: {listed(told)}."] if told else [],
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
