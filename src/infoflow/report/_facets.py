"""Figures of several architectures: layer charts get one panel per architecture, side by side on shared axes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pandas as pd

from infoflow.results import AmbiguousModels

from ._damaged import DAMAGE
from ._figure import Panel, ReportFigure, Section
from ._model_tables import ModelTables
from ._numbers import listed
from .forms._frame import Frame


def facets(
    section: Section, build: Callable[[ModelTables], Section | None], tables: ModelTables, others: list[ModelTables]
) -> tuple[Section, dict[str, str]]:
    """The section with panels of other architectures, and a note on what is still not drawn for each."""
    if not any(_has_facets(figure) for figure in section.figures):
        return section, {}
    told = {other.models.architecture: _built(build, other) for other in others}
    figures, missing = [], {}
    by_id = {name: {figure.id: figure for figure in one.figures} for name, one in told.items() if one is not None}
    for figure in section.figures:
        own = {name: found[figure.id] for name, found in by_id.items() if figure.id in found}
        figures.append(_beside({tables.models.architecture: figure, **own}) if _has_facets(figure) else figure)
    for name, found in by_id.items():
        left = [figure for figure in section.figures if figure.id not in found or not _has_facets(figure)]
        questions = listed([f"“{figure.question}”" for figure in left])
        missing[name] = f"the architecture {name} in {questions}" if left else ""
    keys = {key.key: key for one in (section, *filter(None, told.values())) for key in one.keys}
    return replace(section, figures=figures, keys=list(keys.values())), missing


def _built(build: Callable[[ModelTables], Section | None], tables: ModelTables) -> Section | None:
    """The section for another architecture; None if its rows do not suffice, which the page then states."""
    try:
        return build(tables)
    except (AmbiguousModels, *DAMAGE):
        return None


def _has_facets(figure: ReportFigure) -> bool:
    return bool(figure.panels) and all(panel.form is not None for panel in figure.panels)


def _beside(figures: Mapping[str, ReportFigure]) -> ReportFigure:
    """The first of these figures, with the panels, sentences and data of the others."""
    first, *others = figures.values()
    if not others:
        return first
    said = f"Each architecture has its own panel, with shared axes; the caption describes {next(iter(figures))}."
    return _joined(figures, f"{first.caption} {said}", "architecture")


def side_by_side(figures: Mapping[str, ReportFigure]) -> ReportFigure:
    """The same figure for several runs, by name: one panel per run, with shared axes if both are by layer."""
    caption = " ".join(f"{name}: {figure.caption}" for name, figure in figures.items())
    if all(_has_facets(figure) for figure in figures.values()):
        joined = _joined(figures, caption, "run")
    else:
        panels = [
            replace(panel, title=f"{panel.title}, {name}" if panel.title else name)
            for name, figure in figures.items()
            for panel in figure.panels
        ]
        first = next(iter(figures.values()))
        joined = replace(first, panels=panels, caption=caption, data=_stacked(figures, "run"))
    answer = [f"{name}: {' '.join(figure.answer)}" for name, figure in figures.items()]
    return replace(joined, answer=answer)


def _joined(figures: Mapping[str, ReportFigure], caption: str, column: str) -> ReportFigure:
    """The first figure with the panels of all on shared axes, by title and then by name."""
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
        answer=[*first.answer, *further],
        panels=[
            Panel.of(form.within(frames[title]), f"{title}, {name}" if title else name) for title, name, form in ordered
        ],
        caption=caption,
        data=_stacked(figures, column),
    )


def _stacked(figures: Mapping[str, ReportFigure], column: str) -> pd.DataFrame:
    return pd.concat([one.data.assign(**{column: name}) for name, one in figures.items()], ignore_index=True)
