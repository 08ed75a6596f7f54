"""The parts of a report figure: a question, its picture, the sentence that answers it, how to read it, its methods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from ._model_selection import ModelSelection
from ._theme import Series
from .forms._chart import AbstractForm

_LONG = 240  # characters of an answer that are visible at first


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Panel:
    """One chart: a Vega-Lite specification as wide as its container."""

    spec: dict[str, Any]
    title: str = ""
    form: AbstractForm | None = None  # set for charts that can stand next to another architecture's

    @classmethod
    def of(cls, form: AbstractForm, title: str = "") -> "Panel":
        return cls(spec=form.spec, title=title, form=form)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PanelGroup:
    """Charts of one measure, in a figure that shows one measure at a time."""

    id: str
    label: str
    note: str
    scale: tuple[str, str]  # meaning of the palest and the strongest colour
    panels: list[Panel]


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """How the numbers of some figures are computed: a paragraph of the methods section."""

    id: str
    title: str
    text: str  # our own HTML, with formulas


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReportFigure:
    """A figure that answers the question in its heading."""

    id: str  # also its address: report.html#id
    question: str
    panels: list[Panel]
    caption: str  # sample size, meaning of the bands
    how_to_read: list[str]
    method: Method
    data: pd.DataFrame  # all data of the picture, offered for download
    tables: tuple[str, ...]
    findings: tuple[str, ...] = ()  # ids of the claims it illustrates
    answer: list[str] = field(default_factory=list)  # sentences generated from the data; by default only `words`
    words: str = ""  # the answer in one sentence, above its numbers; "" if there is none
    is_chosen: bool = False  # the answer follows a statistic that the reader chooses
    template: str = "charts.html.jinja"
    payload: dict[str, Any] = field(default_factory=dict)  # additional data for the template and report.js

    def __post_init__(self) -> None:
        if self.words and not self.answer:
            object.__setattr__(self, "answer", [self.words])  # this one sentence is the answer

    def of_decoder(self) -> "ReportFigure":
        """The same figure for decoders, without its claims, which do not cover decoders."""
        question = f"{self.question.removesuffix('?')}, in the decoder?"
        return replace(self, id=f"{self.id}-decoder", question=question, findings=())

    @property
    def numbers(self) -> list[str]:
        """The sentences of the answer that follow `words`."""
        return [] if self.answer == [self.words] else self.answer

    @property
    def folds(self) -> bool:
        """Whether the numbers are folded because words precede them; numbers that depend on a choice stay visible."""
        return bool(self.words) and bool(self.first) and not self.is_chosen

    @property
    def first(self) -> list[str]:
        """The part of the answer that is visible at first: one sentence if the answer is long and has no `words`."""
        plain = self.template == "charts.html.jinja" and "apart" not in self.payload
        is_long = sum(map(len, self.answer)) > _LONG
        return self.numbers[:1] if is_long and not self.words and plain else self.numbers

    @property
    def further(self) -> list[str]:
        """The rest of the answer, which is folded."""
        return self.numbers[len(self.first) :]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Section:
    """One question of the study, with its figures."""

    id: str
    title: str
    lead: str
    short: str = ""  # see `entry`; default: the id
    claims: tuple[str, ...] = ()  # first words of its claims' ids, besides its own id
    figures: list[ReportFigure] = field(default_factory=list)
    keys: list[Series] = field(default_factory=list)  # lines that can be highlighted
    untrained: bool = False  # whether an untrained control is drawn
    notes: list[str] = field(default_factory=list)  # what was measured but not drawn
    template: str = ""  # template above the figures, with a control that applies to all of them
    script: str = ""  # the script of that template
    payload: dict[str, Any] = field(default_factory=dict)  # data for that template
    names: dict[str, str] = field(default_factory=dict)  # figure's id → its name in Python, "room/noun"
    folded: tuple[str, ...] = ()  # ids of figures that stay folded below the others
    open: tuple[str, ...] = ()  # ids of the open figures; by default all that are not in `folded`

    @property
    def entry(self) -> str:
        """The section's name in the top bar and the sidebar."""
        return self.short or self.id.replace("-", " ").capitalize()

    @property
    def shown(self) -> list[ReportFigure]:
        """The figures that are open on the page; all figures if every one of them is in `folded`."""
        if self.open:
            return [figure for figure in self.figures if figure.id in self.open]
        folded = [figure for figure in self.figures if any(_is_of(figure.id, known) for known in self.folded)]
        return [figure for figure in self.figures if figure not in folded] or self.figures

    @property
    def further(self) -> list[ReportFigure]:
        """The folded figures, such as those for each model or stack; none if no open figure would be left."""
        shown = self.shown
        return [figure for figure in self.figures if figure not in shown]

    def name_of(self, figure_id: str) -> str:
        """The Python name of the figure with this id.

        Ids of figures for each model or stack have a suffix, which their names keep.

        >>> Section(id="s", title="", lead="", names={"mi": "representations/information"}).name_of("mi-decoder")
        'representations/information-decoder'
        """
        stated = [known for known in self.names if _is_of(figure_id, known)]
        if not stated:
            return f"{self.id}/{figure_id}"
        known = max(stated, key=len)
        return self.names[known] + figure_id[len(known) :]

    def drawn_with(
        self, figures: Iterable[ReportFigure | None], models: ModelSelection, frames: Iterable[pd.DataFrame]
    ) -> "Section | None":
        """The section with these figures, and the lines and controls found in `frames`; None without figures."""
        drawn, frames = [figure for figure in figures if figure is not None], list(frames)
        if not drawn:
            return None
        untrained = any("trained" in frame and not bool(frame["trained"].all()) for frame in frames)
        return replace(self, figures=drawn, keys=models.present(*frames), untrained=untrained)


def _is_of(figure_id: str, known: str) -> bool:
    return figure_id == known or figure_id.startswith(f"{known}-")


class Drawn(NamedTuple):
    """The run-specific parts of a figure."""

    data: pd.DataFrame
    panels: Sequence[Panel]
    caption: str
    answer: Iterable[str] = ()
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
            question=_filled(self.question, drawn.facts),
            answer=answer,
            panels=list(drawn.panels),
            caption=drawn.caption,
            how_to_read=[text for each in self.how_to_read if (text := _filled(each, drawn.facts))],
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


def _filled(text: str, facts: Mapping[str, str]) -> str:
    for name, value in facts.items():
        text = text.replace(f"{{{name}}}", value)
    return text
