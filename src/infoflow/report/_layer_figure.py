"""Declared figures by layer: one builder draws them and writes their sentences, in panels for several architectures."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import AmbiguousModels, TableSchema

from ._curves import (
    Wording,
    change,
    control_sentence,
    curves,
    interval_note,
    order_sentence,
    sample_note,
    trend_sentences,
    trend_words,
)
from ._figure import Method, Panel, ReportFigure, Section
from ._in_words import Candidate, both_extremes, listed, sentence
from ._model_selection import ModelSelection
from ._model_tables import DAMAGE, ModelTables
from ._theme import Series
from .forms._chart import Frame
from .forms._layer_chart import LayerChart, panel_scales
from .forms._lines import ANY

HOW_BANDS = (
    "Bands are 95% intervals: where two bands do not overlap, the difference is unlikely to be noise. The dashed "
    "grey line is an untrained model of the same shape."
)

_DESCRIBED = 3  # panels that the text describes


def moves(noun: str, unit: str = "") -> Wording:
    """The `Wording` of a quantity that rises and falls: "the share in causal LM rises by 0.21"."""
    return Wording(unit, "rises by", "falls by", subject=lambda series: f"{noun} in {series.label}")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerFigure:
    """A figure with one line per model, and sentences about these lines.

    Its axis title and reading guide may name columns of the table: "{neighbours} nearest neighbours".
    """

    id: str
    question: str
    table: TableSchema
    axis: Mapping[str, Any]  # the chart's description of its values (see `LayerChart`)
    how_to_read: Sequence[str]
    method: Method
    noun: str  # what changes with depth, without a number: "the share of neighbours that are the same token"
    wording: Wording  # how the sentences state this change with numbers
    top: str = ""  # start of a sentence on the order of the lines at the top layer
    caption: Callable[[pd.DataFrame], str] = lambda rows: ""  # follows the note on the bands
    claims: Sequence[str] = ()
    panels: str = ""  # a column of the table: one panel per value
    titles: Mapping[str, str] = field(default_factory=dict)  # panel titles in order; other panels follow
    one_scale: bool = True  # for panels of the same unit and size; otherwise each panel has its own scale
    zero: float = math.inf  # see `panel_scales`
    known: str = ""  # the column with the value that layer 0 must have, drawn as a line across
    known_name: str = ""

    def drawn(self, rows: pd.DataFrame, series: list[Series], **own: Any) -> ReportFigure:
        """The figure for rows with the column `series`; `own` overrides parts of the declaration."""
        parts = self._parts(rows)
        tables = {title: with_convergence(curves(part), part) for title, part in parts.items()}
        axis, scale = {**self.axis, "y_title": filled(self.axis["y_title"], rows)}, ""
        if self.known and math.isfinite(known := float(rows.loc[rows["trained"], self.known].median())):
            axis["known"] = (known, self.known_name)
        if self.panels:
            named = [one.assign(**{self.panels: parts[title][self.panels].iloc[0]}) for title, one in tables.items()]
            if self.one_scale:
                panels, scale = shared_panels(tables, lambda _: series, zero=self.zero, **axis)
            else:
                panels, scale = layer_panels(tables, lambda _: series, **axis), "Each panel has its own scale."
        else:
            named = [tables[""]]
            panels = [Panel.of(LayerChart(table=tables[""], series=series, **axis))]
        data = pd.concat(named, ignore_index=True)
        caption = " ".join(filter(None, (interval_note(data), self.caption(rows), scale))) + sample_note(rows)
        figure = ReportFigure(
            id=self.id,
            question=self.question,
            answer=self._answer(parts, series),
            words=trend_words(rows, series, self.noun) if not self.panels else _panel_words(parts, series, self.noun),
            panels=panels,
            caption=caption,
            how_to_read=[filled(text, rows) for text in self.how_to_read],
            method=self.method,
            data=data,
            tables=(self.table.name,),
            findings=tuple(self.claims),
        )
        return replace(figure, **own)

    def _parts(self, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        if not self.panels:
            return {"": rows}
        measured = list(dict.fromkeys(rows[self.panels]))
        values = [*(value for value in self.titles if value in measured)]
        values += [value for value in measured if value not in self.titles]
        return {self.titles.get(value, str(value)): rows[rows[self.panels] == value] for value in values}

    def _answer(self, parts: Mapping[str, pd.DataFrame], series: list[Series]) -> list[str]:
        if not self.panels:
            order = order_sentence(parts[""], series, self.top) if self.top else ""
            return [*([order] if order else []), *trend_sentences(parts[""], series, self.wording)]
        stated = []
        for title, own in list(parts.items())[:_DESCRIBED]:
            first = trend_sentences(own, series, self.wording)[0]
            stated.append(f"{title[:1].upper()}{title[1:]}: {first[:1].lower()}{first[1:]}")
        control = control_sentence(parts.values(), series, self.wording.unit)
        return [*stated, control] if control else stated


def _panel_words(parts: Mapping[str, pd.DataFrame], series: list[Series], noun: str) -> str:
    """The largest and smallest changes of lines from bottom to top, in the first panels."""
    stated = []
    for title, own in list(parts.items())[:_DESCRIBED]:
        lines = [line for line in series if len(own[(own["series"] == line.key) & own["trained"]])]
        gains = both_extremes([Candidate(f"in {line.label}", change(own, line.key)) for line in lines])
        stated += [f"{title}, {gains}"] if gains else []
    return sentence(f"the change of {noun} from bottom to top is, for {'; for '.join(stated)}") if stated else ""


def filled(text: str, rows: pd.DataFrame) -> str:
    """Fill in the first value of each column that the text names."""
    return text.format_map(rows.iloc[0]) if "{" in text else text


def layer_panels(
    tables: Mapping[Any, pd.DataFrame],
    lines: ModelSelection | Callable[[Any], list[Series]],
    title: Callable[[Any], str] = str,
    **axis: Any,
) -> list[Panel]:
    """One panel per table; `lines` gives a table's lines by its key, or is the models whose trained lines are shown.

    `axis` applies to all panels (see `LayerChart`).
    """

    def shown(key: Any) -> list[Series]:
        table = tables[key]
        return lines.present(table[table["group"] == "trained"]) if isinstance(lines, ModelSelection) else lines(key)

    return [Panel.of(LayerChart(table=own, series=shown(key), **axis), title(key)) for key, own in tables.items()]


def shared_panels(
    tables: Mapping[str, pd.DataFrame],
    lines: ModelSelection | Callable[[Any], list[Series]],
    zero: float = math.inf,
    **axis: Any,
) -> tuple[list[Panel], str]:
    """`layer_panels` on one scale unless spans differ greatly, and a note on the scale; `zero`: see `panel_scales`."""
    shared = "Panels share one scale." if len(tables) > 1 else ""
    y_range, note = panel_scales(tables.values(), shared, axis.get("bounds", ANY), zero)
    return layer_panels(tables, lines, y_range=y_range, **axis), note


def stacked(tables: Mapping[Any, pd.DataFrame], *columns: str) -> pd.DataFrame:
    """The rows of all tables, with each table's key in `columns`."""
    keys = {key: key if isinstance(key, tuple) else (key,) for key in tables}
    parts = [table.assign(**dict(zip(columns, keys[key], strict=True))) for key, table in tables.items()]
    return pd.concat(parts, ignore_index=True)


def with_convergence(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """`curves(frame)`, with a column `converged` (whether every seed has converged) if `frame` has one."""
    if "converged" not in frame:
        return table
    groups = frame.assign(group=np.where(frame["trained"], "trained", "untrained"))
    found = groups.groupby(["series", "group", "layer"])["converged"].all()
    keys = pd.MultiIndex.from_frame(table[["series", "group", "layer"]])
    return table.assign(converged=found.reindex(keys, fill_value=True).to_numpy(dtype=bool))


def facets(
    section: Section, build: Callable[[ModelTables], Section | None], tables: ModelTables, others: list[ModelTables]
) -> tuple[Section, dict[str, str]]:
    """The section with panels of other architectures, and a note on what is not drawn for each."""
    if not any(_has_facets(figure) for figure in section.figures):
        return section, {}
    stated = {other.models.architecture: _built(build, other) for other in others}
    figures, missing = [], {}
    by_id = {name: {figure.id: figure for figure in one.figures} for name, one in stated.items() if one is not None}
    for figure in section.figures:
        own = {name: found[figure.id] for name, found in by_id.items() if figure.id in found}
        figures.append(_merged({tables.models.architecture: figure, **own}) if _has_facets(figure) else figure)
    for name, found in by_id.items():
        left = [figure for figure in section.figures if figure.id not in found or not _has_facets(figure)]
        questions = listed([f"“{figure.question}”" for figure in left])
        missing[name] = f"the architecture {name} in {questions}" if left else ""
    keys = {key.key: key for one in (section, *filter(None, stated.values())) for key in one.keys}
    return replace(section, figures=figures, keys=list(keys.values())), missing


def _built(build: Callable[[ModelTables], Section | None], tables: ModelTables) -> Section | None:
    """The section for another architecture; None if its rows do not suffice, which the page then states."""
    try:
        return build(tables)
    except (AmbiguousModels, *DAMAGE):
        return None


def _has_facets(figure: ReportFigure) -> bool:
    return any(panel.form is not None for panel in figure.panels)


def _merged(figures: Mapping[str, ReportFigure]) -> ReportFigure:
    """The first of these figures, with the panels, sentences and data of the others added."""
    first, *others = figures.values()
    if not others:
        return first
    said = f"Each architecture has its own panel, with shared axes; the caption describes {next(iter(figures))}."
    return _joined(figures, f"{first.caption} {said}", "architecture")


def side_by_side(figures: Mapping[str, ReportFigure]) -> ReportFigure:
    """The same figure for several runs, by name: one panel per run, with shared axes if both are by layer."""
    caption = " ".join(f"{name}: {figure.caption}" for name, figure in figures.items())
    if all(panel.form is not None for figure in figures.values() for panel in figure.panels):
        joined = _joined(figures, caption, "run")
    else:
        panels = [
            replace(panel, title=f"{panel.title}, {name}" if panel.title else name)
            for name, figure in figures.items()
            for panel in figure.panels
        ]
        data = stacked({name: figure.data for name, figure in figures.items()}, "run")
        joined = replace(next(iter(figures.values())), panels=panels, caption=caption, data=data)
    answer = [f"{name}: {' '.join(figure.answer)}" for name, figure in figures.items()]
    return replace(joined, answer=answer)


def _joined(figures: Mapping[str, ReportFigure], caption: str, column: str) -> ReportFigure:
    """The first figure, with the comparable panels of all figures on shared axes, and its own other panels."""
    panels = [(name, panel) for name, one in figures.items() for panel in one.panels]
    found = [(panel.title, name, panel.form) for name, panel in panels if panel.form is not None]
    titles = list(dict.fromkeys(title for title, _, _ in found))
    ordered = sorted(found, key=lambda each: titles.index(each[0]))
    one_scale = Frame.around(form.frame for *_, form in found) if any(form.compared for *_, form in found) else None
    frames = {title: one_scale or Frame.around(f.frame for own, _, f in found if own == title) for title in titles}
    first = next(iter(figures.values()))
    further = [f"{name}: {' '.join(one.answer)}" for name, one in list(figures.items())[1:]]
    return replace(
        first,
        answer=[*first.numbers, *further],
        panels=[
            *(
                Panel.of(form.within(frames[title]), f"{title}, {name}" if title else name)
                for title, name, form in ordered
            ),
            *(panel for panel in first.panels if panel.form is None),
        ],
        caption=caption,
        data=stacked({name: one.data for name, one in figures.items()}, column),
    )
