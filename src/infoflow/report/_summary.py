"""The top of the report: what was studied, and what was found."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings import FINDINGS
from infoflow.results import END, TASK_SCORES, UNTRAINED, RunFolder

from ._figure import ReportFigure
from ._in_words import count_text, decimals, duration_text, listed, number
from ._model_selection import ModelSelection, entries_with_readers, seeds_of_lines
from ._theme import objective_label

_NEEDED = re.compile(r"needed ([<>])")
OPPOSITE, WEAKER, CONTROL, OTHER = "opposite", "weaker", "no more than the control", "otherwise"
KINDS = (OPPOSITE, WEAKER, CONTROL, OTHER)
"""The kinds of failure, the most informative first."""


def failure_kind(row: dict) -> str:
    """Classify how a claim fails.

    opposite: the whole interval lies on the other side of zero; no more than the control: the effect is not larger
    than that of the control; weaker: the direction is right, but the threshold is missed.
    """
    asked = _NEEDED.search(str(row.get("reason") or ""))
    if not asked:
        return OTHER
    sign = 1 if asked[1] == ">" else -1
    effect, high = sign * float(row["effect"]), max(sign * float(row[name]) for name in ("low", "high"))
    threshold, control = sign * float(row["threshold"]), sign * float(row.get("control", float("nan")))
    if threshold < 0:
        return OTHER  # a claim that something is small can fail in one direction only
    if high < 0:
        return OPPOSITE
    if effect <= control:
        return CONTROL
    return WEAKER if effect > 0 else OTHER


def kind_text(row: dict) -> str:
    """The kind of failure, as it follows the verdict; "" if it has no name."""
    kind = failure_kind(row)
    return "" if kind == OTHER else kind


UNTESTABLE = "not testable here"
VERDICTS = {"holds": "✓", "fails": "✗", "undetermined": "?", UNTESTABLE: "–"}  # verdict → its mark


@dataclass(frozen=True, kw_only=True, slots=True)
class ScorecardRow:
    """A claim's row in the scorecard."""

    id: str
    claim: str
    symbol: str
    verdict: str
    kind: str  # how a failing claim fails: "opposite", "weaker", …; "" for all others
    effect: str  # "1.33", "" if nothing was measured
    interval: str  # "1.25 to 1.41"
    unit: str
    threshold: str
    control: str
    published: str
    source: str
    short_source: str  # authors and year
    source_read: str  # how much of it was read; empty: not stated
    reason: str
    cause: str  # why it failed in our experiments, if it does not hold here
    trend: str  # how the effect changes over scale, if several runs were compared
    elsewhere: str  # verdicts for other architectures and moments of training
    notes: list[str]  # every condition and control with its numbers
    seeds: int
    covers: str  # what the interval covers: "seeds and sentences", or only "sentences"
    figure: str  # id of the figure that shows it, or ""
    bar: dict[str, float]  # positions in percent: low, high, value, threshold, control, zero; empty without an effect

    @property
    def hollow(self) -> str:
        """CSS class of marks whose interval covers only sentences."""
        return "hollow" if self.covers == "sentences" else ""


def study_line(run: RunFolder, models: ModelSelection) -> str:
    """A sentence on the models of a run, their data and the time that it took."""
    manifest = run.read()
    if runs := manifest.get("runs"):
        return _runs_phrase(runs)
    corpus = manifest.get("corpus", {})
    parts = [_models_phrase(entries_with_readers(run), models)]
    if corpus.get("name"):
        sizes = [f"{count_text(corpus[key])} {key}" for key in ("sentences", "words") if corpus.get(key)]
        verb = "trained and measured on" if manifest.get("kind") == "study" else "measured on"
        parts.append(f"{verb} {_short_corpus(corpus['name'])}" + (f" ({listed(sizes)})" if sizes else ""))
    if seconds := manifest.get("seconds"):
        parts.append(f"in {duration_text(float(seconds))}")
    return ", ".join(part for part in parts if part) + "."


def model_rows(run: RunFolder, models: ModelSelection) -> list[dict[str, Any]]:
    """Label, slot and cells of each row of the table of models; columns that no model fills are left out."""
    entries = entries_with_readers(run)
    entries = models.named(entries) if "model" in entries else entries.assign(series="")
    rows = [(line, _model_cells(entries[entries["series"] == line.key], models)) for line in models.series]
    filled = [name for name in (rows[0][1] if rows else {}) if any(cells[name] != "–" for _, cells in rows)]
    return [
        {"label": line.label, "slot": line.slot, "cells": {name: cells[name] for name in filled}}
        for line, cells in rows
    ]


def findings_of(every: pd.DataFrame | None, figures: list[ReportFigure]) -> list[ScorecardRow]:
    """The claims of a table of findings with their numbers in words; [] without a table."""
    if every is None:
        return []
    first = every.drop_duplicates("id")  # its first row covers the first architecture, at the end of training
    elsewhere = every.drop(first.index)
    return [
        _finding(row, figures, elsewhere[elsewhere["id"] == row["id"]].to_dict("records"))
        for row in first.to_dict("records")
    ]


def verdict_verb(verdict: str, count: int) -> str:
    """A count of claims with its verdict: `1 holds`, `2 hold`."""
    return {"holds": "hold", "fails": "fail"}.get(verdict, verdict) if count > 1 else verdict


def verdict_line(findings: list[ScorecardRow]) -> str:
    """A sentence on how many claims hold, fail, and so on."""
    counts = Counter(finding.verdict for finding in findings)
    words = {"undetermined": ("stays undetermined", "stay undetermined"), UNTESTABLE: ("cannot be tested here",) * 2}
    parts = [
        f"{count} {words[verdict][count > 1] if verdict in words else verdict_verb(verdict, count)}"
        for verdict in VERDICTS
        if (count := counts[verdict])
    ]
    claims = "claim was" if len(findings) == 1 else "claims were"
    return f"{len(findings)} {claims} checked on these models: {listed(parts)}."


def _runs_phrase(runs: list[dict[str, Any]]) -> str:
    widths = listed([str(width) for width in sorted({int(run["width"]) for run in runs})])
    tokens = sorted(float(run["tokens"]) for run in runs)
    corpora = listed([_short_corpus(name) for name in dict.fromkeys(str(run["corpus"]) for run in runs)])
    spans = list(dict.fromkeys((count_text(tokens[0]), count_text(tokens[-1]))))
    read = f"{' to '.join(spans)} tokens of {corpora}"
    studies = "One study over its training" if len(runs) == 1 else f"{len(runs)} studies compared"
    return f"{studies}: models of width {widths}, which read {read}."


def _short_corpus(name: str) -> str:
    """Corpus files by name only; the methods section gives full paths."""
    return name if name.startswith(("hf:", "grammar:")) else listed([Path(part).name for part in name.split(",")])


def _models_phrase(entries: pd.DataFrame, models: ModelSelection) -> str:
    if models.by == "objective" and models.series:
        seeds = seeds_of_lines(entries)
        stated = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        names = listed([series.label for series in models.series])
        each = " each" if len(models.series) > 1 else ""
        families = len(set(entries["architecture"])) if "architecture" in entries else 1
        shapes = "one architecture" if families < 2 else f"{models.architecture}, the first of {families} architectures"
        return f"{names[:1].upper()}{names[1:]}: {shapes}, {stated} seed{'s' if seeds[-1] > 1 else ''}{each}"
    return listed([series.label for series in models.series]) or "No model"


def _model_cells(own: pd.DataFrame, models: ModelSelection) -> dict[str, str]:
    def middle(column: str) -> float:
        values = pd.to_numeric(own[column], errors="coerce").dropna() if column in own else pd.Series(dtype=float)
        return float(values.median()) if len(values) else math.nan

    seconds = duration_text(middle("seconds"))
    cells = {"parameters": count_text(middle("parameters")), "updates": count_text(middle("updates"))}
    cells |= {"source tokens": count_text(middle("source_tokens"))}
    cells["time per model" if models.by == "objective" else "time"] = seconds
    if models.by == "objective":
        cells = {"seeds": _seeds_cell(own), **cells}
    elif "objective" in own and len(own):
        cells = {"task": objective_label(str(own["objective"].iloc[0])), **cells}
    return cells


def _seeds_cell(own: pd.DataFrame) -> str:
    """`1 (seed 0)`, `3 (seeds 0, 1 and 2)`: the number comes first, since a single `0` would read as none."""
    seeds = [str(seed) for seed in sorted(set(own["seed"]))] if len(own) else []
    return f"{len(seeds)} (seed{'s' if len(seeds) > 1 else ''} {listed(seeds)})" if seeds else "–"


def _elsewhere(row: dict[str, Any]) -> str:
    """The verdict for another architecture or checkpoint, with its mark."""
    update = int(row.get("update", END))
    moment = {END: "", UNTRAINED: "untrained"}.get(update, f"after {update:,} updates")
    named = str(row.get("model") or row.get("architecture") or "")  # external models may share an architecture
    where = ", ".join(part for part in (named, moment) if part) or "again"
    verdict, effect = str(row["verdict"]), _float(row.get("effect"))
    stated = f" ({number(effect, decimals(_float(row.get('low')), _float(row.get('high')), effect))})"
    return f"{where}: {VERDICTS.get(verdict, '?')} {verdict}{stated if math.isfinite(effect) else ''}"


def _finding(row: dict[str, Any], figures: list[ReportFigure], elsewhere: list[dict[str, Any]]) -> ScorecardRow:
    effect, low, high, threshold, control = (
        _float(row.get(key)) for key in ("effect", "low", "high", "threshold", "control")
    )
    places = decimals(low, high, effect)
    known = math.isfinite(effect)
    id, verdict = str(row["id"]), str(row["verdict"])
    control_name = row.get("control_name") or "control"
    trend, run = str(row.get("trend") or ""), str(row.get("run") or "")
    reason, more = _first_sentence(str(row.get("reason") or ""), shorten=verdict == "not testable here")
    return ScorecardRow(
        id=id,
        claim=str(row["claim"]),
        symbol=VERDICTS.get(verdict, "?"),
        verdict=verdict,
        kind=kind_text(row) if verdict == "fails" else "",
        effect=number(effect, places) if known else "",
        interval=f"{number(low, places)} to {number(high, places)}" if known and math.isfinite(low) else "",
        unit=str(row.get("unit") or ""),
        threshold=f"{threshold:g}".replace("-", "−") if known and math.isfinite(threshold) else "",
        control=f"{control_name}: {number(control, places)}" if known and math.isfinite(control) else "",
        published=_published(row.get("published"), row.get("unit")),
        source=str(row.get("source") or ""),
        source_read=str(row.get("source_read") or ""),
        short_source=_authors_and_year(str(row.get("source") or "")),
        reason=reason,
        cause=FINDINGS[id].known_cause if id in FINDINGS and verdict in ("fails", "undetermined") else "",
        trend=f"{trend}; the numbers here are from {run}" if trend and run else trend,
        elsewhere="; ".join(map(_elsewhere, elsewhere)),
        notes=[note for note in (more, *str(row.get("note") or "").splitlines()) if note.strip()],
        seeds=int(row.get("seeds") or 0),
        covers=str(row.get("covers") or "") if known else "",
        figure=_figure_of(id, str(row.get("tables") or ""), figures),
        bar=_bar(effect, low, high, threshold, control) if known else {},
    )


def _published(value: Any, unit: Any) -> str:
    """The paper's result: a text is unchanged, a number gets the effect's unit."""
    if isinstance(value, str):
        return value
    figure = _float(value)
    return f"{number(figure)} {unit or ''}".strip() if math.isfinite(figure) else ""


def _figure_of(id: str, tables: str, figures: list[ReportFigure]) -> str:
    """The figure that shows the claim or one of its tables, except the scores, which every claim reads."""
    for figure in figures:
        if id in figure.findings:
            return figure.id
    names = {name.strip() for name in tables.split(",")} - {TASK_SCORES.name}
    return next((figure.id for figure in figures if names & set(figure.tables)), "")


def _bar(effect: float, low: float, high: float, threshold: float, control: float) -> dict[str, float]:
    """Positions of the marks in the row's small picture, in percent of its width; zero is always visible."""
    marks = {"value": effect, "low": low, "high": high, "threshold": threshold, "control": control, "zero": 0.0}
    marks = {name: value for name, value in marks.items() if math.isfinite(value)}
    first, last = min(marks.values()), max(marks.values())
    span = (last - first) or 1.0
    return {name: round(4 + 92 * (value - first) / span, 2) for name, value in marks.items()}


def _authors_and_year(source: str) -> str:
    """`Voita, Sennrich and Titov 2019` from a longer reference; the full reference if it has no year."""
    match = re.match(r".*?\b(?:19|20)\d\d\b", source)
    return match[0] if match else source


def _first_sentence(text: str, shorten: bool) -> tuple[str, str]:
    """The text, or its first sentence and the rest, which goes to the notes (a long list of models, for example)."""
    first, dot, rest = text.partition(". ")
    return (f"{first}.", rest) if shorten and dot and len(text) > 160 else (text, "")


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
