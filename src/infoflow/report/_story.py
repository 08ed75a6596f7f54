"""The whole report as data, before any HTML: what was studied, what was found, and the sections that show it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import pandas as pd
from altair.utils.schemapi import debug_mode

from infoflow._subjects import provided
from infoflow.findings import FINDINGS_TABLE
from infoflow.foundation import UserError
from infoflow.heads import HEAD_ROLES
from infoflow.results import SUFFIX, TABLES, AmbiguousModels, RunFolder

from ._figure import Method, ReportFigure, Section
from ._layer_figure import facets
from ._model_selection import ModelSelection
from ._model_tables import DAMAGE, ModelTables, kind_of, unless_damaged
from ._summary import UNTESTABLE, ScorecardRow, findings_of
from .front_page._screen import Screen, first_screen
from .heads._heads import HEADS, heads_section
from .notebook._own_table import own_figure
from .representations._change import CHANGES, change_section
from .representations._knowledge import KNOWS, knowledge_section
from .representations._neighbours import NEIGHBOURS, neighbours_section
from .representations._similarity import SIMILARITY, similarity_section
from .representations._space import SPACE, space_section
from .representations._words import WORDS, words_section
from .training._training import TRAINING, training_section

OWN = Section(
    id="own",
    title="What do your own measures find?",
    lead="Measures that you added to those of the package, each with its own interval and control.",
    names={"own": "own/table"},
)
_METHOD = Method(
    id="own-measures",
    title="Your own measures",
    text="""
    These measures are not part of the package: they were passed to the command, as a file or as objects. They read
    the same sentences in the same pass as the others, in the model and in its untrained control. The code of each
    measure and the description of its table say what it computes. The columns of a table determine how it is drawn.
    """,
)


FURTHER = Section(
    id="further",
    title="What else was measured?",
    lead="Tables that no figure above shows: some are used only by claims, others can be drawn only with a "
    "second table.",
    names={"further": "further/table"},
)
_FURTHER_METHOD = Method(
    id="further-tables",
    title="Further tables",
    text="""
    The description of each table and the documentation of its measure say what a number is, and in which unit. The
    columns of a table determine how it is drawn.
    """,
)
_WORDS_ONLY = "findings"  # tables of verdicts are shown as cards
_OPEN = 3  # number of a section's figures that are open on the page; the others are folded


def own_section(tables: ModelTables) -> Section | None:
    """The section on the user's own measures; None without such measures."""
    return _section(OWN, _METHOD, tables, {name: tables.get(name) for name in tables.own})


def further_section(tables: ModelTables, shown: Collection[str]) -> Section | None:
    """The run's tables that are not in `shown`; None if there are none."""
    left = [name for name in tables.names if name not in shown and not name.startswith(_WORDS_ONLY)]
    return _section(FURTHER, _FURTHER_METHOD, tables, {name: tables.any_rows(name) for name in left})


def _section(
    heading: Section, method: Method, tables: ModelTables, frames: Mapping[str, pd.DataFrame | None]
) -> Section | None:
    figures: list[ReportFigure] = []
    notes = []
    for name, frame in frames.items():
        if frame is None:
            continue
        schema = TABLES.get(name.removesuffix(SUFFIX)) or tables.schema(name)
        question, _, rest = schema.description.strip().partition("\n")
        if heading is FURTHER and "value" not in frame:
            notes.append(f"Not drawn: the table {name} ({len(frame):,} rows), which has no value column. {question}")
            continue
        try:
            figure = own_figure(frame.drop(columns="series", errors="ignore"), schema, name)
        except (UserError, *DAMAGE) as refused:
            reason = f" {refused}" if isinstance(refused, UserError) and heading is OWN else ""
            notes.append(f"Not drawn: the table {name} ({len(frame):,} rows). {question}{reason}")
            continue
        figures.append(
            replace(
                figure,
                id=f"{heading.id}-{name.replace('_', '-')}",
                question=question or name,
                how_to_read=[*figure.how_to_read, *([rest.strip()] if rest.strip() else [])],
                method=method,
                tables=(name,),
            )
        )
    if not figures:
        return replace(heading, notes=notes) if notes else None
    read = [frame for figure in figures for name in figure.tables if (frame := frames[name]) is not None]
    section = heading.drawn_with(figures, tables.models, [frame for frame in read if "series" in frame])
    return replace(section, notes=notes) if section else None


Builder = Callable[[ModelTables], Section | None]

_SECTIONS: tuple[tuple[int, Section, Builder], ...] = (
    (30, OWN, own_section),
    (40, KNOWS, knowledge_section),
    (50, CHANGES, change_section),
    (60, SIMILARITY, similarity_section),
    (70, SPACE, space_section),
    (100, NEIGHBOURS, neighbours_section),
    (110, WORDS, words_section),
    (130, HEADS, heads_section),
    (180, TRAINING, training_section),
)
"""The core's sections with their places on the page: what layers encode, then heads, then training."""


@cache
def sections() -> tuple[tuple[Section, Builder], ...]:
    """All sections and their builders, in the order of the page; a section without tables is omitted."""
    placed = [*_SECTIONS, *(one for own in provided("figures", "SECTIONS") for one in own)]
    return tuple((heading, build) for _, heading, build in sorted(placed, key=lambda one: one[0]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Story:
    """All content of the page."""

    models: ModelSelection
    sections: list[Section]
    findings: list[ScorecardRow]
    screen: Screen | None  # None if a damaged run has none
    left_out: list[str]  # in words, what is left out because tables or run.json are damaged

    @property
    def figures(self) -> list[ReportFigure]:
        return [figure for section in self.sections for figure in section.figures]


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Input of all sections: the tables of the shown models, and of further architectures."""

    tables: ModelTables
    others: list[ModelTables]

    @classmethod
    def of(cls, run: RunFolder) -> "Sources":
        try:
            models = ModelSelection.of(run)
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(
                f"{run.path} is damaged: its tables or run.json do not say which models they are about "
                f"({kind_of(error)}). Repeat the run that wrote it."
            ) from error
        return cls(
            ModelTables(run, models), [ModelTables(run, ModelSelection.of(run, name)) for name in models.further]
        )

    def section(self, heading: Section, build: Builder, left_out: list[str]) -> Section | None:
        """One of `sections()`, with the comparable panels of further architectures, and notes on what is not drawn.

        None if the run has no data for it; `left_out` collects notes on damaged data.
        """
        name = f"the section on {build.__name__.removesuffix('_section').replace('_', ' ')}"
        with debug_mode(False):  # these charts are tested, and schema validation would double the time
            return unless_damaged(lambda: self._section(heading, build), None, name, left_out)

    def _section(self, heading: Section, build: Builder) -> Section | None:
        self.tables.forget()
        others_refused: dict[str, str] = {}
        try:
            section, refused = build(self.tables), []
        except AmbiguousModels as error:
            section, refused = None, [f"Not drawn: {error}"]
        if section and self.others:
            section, others_refused = facets(section, build, self.tables, self.others)
        notes = [*(section.notes if section else []), *self.tables.notes(others_refused), *refused]
        return replace(section or heading, notes=notes) if section or notes else None


def tell(run: RunFolder, on_section: Callable[[Section], None] | None = None) -> Story:
    """The content of a run's report, from its available tables; `on_section` receives each section once it is made.

    Raises:
        UserError: A table is damaged, or none names its models.
    """
    left_out: list[str] = []
    sources = Sources.of(run)
    shown_sections: list[Section] = []
    for heading, build in sections():
        if (section := sources.section(heading, build, left_out)) is not None:
            shown_sections.append(section)
            if on_section is not None:
                on_section(section)
    drawn = [figure for section in shown_sections for figure in section.figures]
    shown = {name for figure in drawn for name in figure.tables}
    if any(figure.id == "head-map" for figure in drawn):
        shown.add(HEAD_ROLES.name)  # a card of the front page shows it
    further = partial(further_section, sources.tables, shown)
    if (rest := unless_damaged(further, None, "the further tables", left_out)) is not None:
        shown_sections.append(rest)
    figures = [figure for section in shown_sections for figure in section.figures]
    findings = unless_damaged(
        lambda: findings_of(run.tables.get(FINDINGS_TABLE.name), figures), [], "the findings", left_out
    )
    screen = unless_damaged(partial(first_screen, run, sources.tables, figures), None, "the front page", left_out)
    shown_sections = [_opened(section, screen, findings) for section in shown_sections]
    return Story(
        models=sources.tables.models, sections=shown_sections, findings=findings, screen=screen, left_out=left_out
    )


def _opened(section: Section, screen: Screen | None, findings: list[ScorecardRow]) -> Section:
    """The section with its most telling figures open: those of the front page, then those with a tested claim."""
    if len(section.shown) <= _OPEN:
        return section
    on_cards = {card.figure for card in screen.cards} if screen else set()
    tested = {finding.figure for finding in findings if finding.verdict != UNTESTABLE}
    ranked = sorted(section.shown, key=lambda figure: (figure.id not in on_cards, figure.id not in tested))
    return replace(section, open=tuple(figure.id for figure in ranked[:_OPEN]))
