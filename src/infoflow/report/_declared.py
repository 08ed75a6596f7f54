"""Figures as data: question, reading guide and methods are declared next to the function that draws a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from ._figure import Method, Panel, ReportFigure
from ._shown_models import ShownModels


class Drawn(NamedTuple):
    """The run-specific parts of a figure."""

    data: pd.DataFrame
    panels: Sequence[Panel]
    answer: Iterable[str]
    caption: str
    words: str = ""
    payload: Mapping[str, Any] = MappingProxyType({})
    facts: Mapping[str, str] = MappingProxyType({})  # values for `{name}` in the question and the reading guide
    findings: tuple[str, ...] = ()  # if they differ between runs
    tables: Sequence[str] = ()  # if they differ between runs
    method: Method | None = None  # if it differs between runs


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DeclaredFigure:
    """A figure of a section, for every run with the required data."""

    name: str  # name in Python: "room/noun"
    id: str
    question: str
    how_to_read: Sequence[str]
    method: Method
    draw: Callable[..., Drawn | None]  # None: the run has no data for it
    tables: Sequence[str] = ()
    findings: tuple[str, ...] = ()
    template: str = "charts.html.jinja"
    payload: Mapping[str, Any] = field(default_factory=dict)  # the same in every run

    def of(self, *inputs: Any) -> ReportFigure | None:
        """The figure of a run, from the arguments that its section passes to `draw`."""
        drawn = self.draw(*inputs)
        if drawn is None:
            return None
        answer = [text for text in drawn.answer if text]
        return ReportFigure(
            id=self.id,
            question=filled(self.question, drawn.facts),
            answer=answer,
            panels=list(drawn.panels),
            caption=drawn.caption,
            how_to_read=[text for each in self.how_to_read if (text := filled(each, drawn.facts))],
            method=drawn.method or self.method,
            data=drawn.data,
            tables=tuple(drawn.tables or self.tables),
            findings=drawn.findings or self.findings,
            words=drawn.words,
            template=self.template,
            payload={**self.payload, **drawn.payload},
        )


def names_of(figures: Iterable[DeclaredFigure]) -> dict[str, str]:
    """The figures' ids with their Python names, for a `Section`."""
    return {figure.id: figure.name for figure in figures}


def tables_of(figures: Iterable[DeclaredFigure]) -> list[str]:
    """Names of all tables of the figures."""
    return list(dict.fromkeys(name for figure in figures for name in figure.tables))


def drawn_from(
    frames: Mapping[str, pd.DataFrame], figures: Iterable[DeclaredFigure], models: ShownModels
) -> list[ReportFigure | None]:
    """The figures with any of their tables; `draw` gets these in order (a missing one is empty), and the models."""
    known = [figure for figure in figures if any(name in frames for name in figure.tables)]
    return [figure.of(*(frames.get(name, pd.DataFrame()) for name in figure.tables), models) for figure in known]


def filled(text: str, facts: Mapping[str, Any] | pd.Series) -> str:
    """The text with each `{name}` replaced by the fact of that name."""
    return text.format_map(facts) if "{" in text else text
