"""The whole report as data, before any HTML: what was studied, what was found, and the sections that show it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from altair.utils.schemapi import debug_mode

from infoflow._subjects import provided
from infoflow.foundation import UserError
from infoflow.results import AmbiguousModels, RunFolder

from ._damaged import kind_of, unless_damaged
from ._facets import facets
from ._figure import ReportFigure, Section
from ._model_tables import ModelTables
from ._shown_models import ShownModels
from ._summary import ScorecardRow, scorecard
from .first._screen import Screen, first_screen
from .heads._heads import HEADS, heads_section
from .knows._change import CHANGES, change_section
from .knows._knowledge import KNOWS, knowledge_section
from .knows._lenses import PREDICTS, lenses_section
from .knows._neighbours import NEIGHBOURS, neighbours_section
from .knows._similarity import SIMILARITY, similarity_section
from .knows._space import SPACE, space_section
from .knows._words import WORDS, words_section
from .own._section import OWN, further_section, own_section
from .probing._section import PROBING, probing_section
from .training._training import TRAINING, training_section

Builder = Callable[[ModelTables], Section | None]

_SECTIONS: tuple[tuple[int, Section, Builder], ...] = (
    (30, OWN, own_section),
    (40, KNOWS, knowledge_section),
    (50, CHANGES, change_section),
    (60, SIMILARITY, similarity_section),
    (70, SPACE, space_section),
    (80, PREDICTS, lenses_section),
    (90, PROBING, probing_section),
    (100, NEIGHBOURS, neighbours_section),
    (110, WORDS, words_section),
    (130, HEADS, heads_section),
    (180, TRAINING, training_section),
)
"""The core's sections with their places on the page: what layers know, then heads, then training."""


@cache
def sections() -> tuple[tuple[Section, Builder], ...]:
    """All sections and their builders in the order of the page; those without tables omit themselves."""
    placed = [*_SECTIONS, *(one for own in provided("figures", "SECTIONS") for one in own)]
    return tuple((heading, build) for _, heading, build in sorted(placed, key=lambda one: one[0]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Story:
    """All content of the page."""

    models: ShownModels
    sections: list[Section]
    findings: list[ScorecardRow]
    screen: Screen | None  # None if a damaged run has none
    left_out: list[str]  # in words, what damaged tables or a damaged run.json left out

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
        """The sources of a run.

        Raises:
            UserError: A table is damaged, or none names its models.
        """
        try:
            models = ShownModels.of(run)
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(
                f"{run.path} is damaged: its tables or run.json do not say which models they are about "
                f"({kind_of(error)}). Repeat the run that wrote it."
            ) from error
        return cls(ModelTables(run, models), [ModelTables(run, ShownModels.of(run, name)) for name in models.further])

    def section(
        self, heading: Section, build: Callable[[ModelTables], Section | None], left_out: list[str]
    ) -> Section | None:
        """One of `sections()`, or None if the run has no data for it; `left_out` collects notes on damaged data."""
        told = partial(_section, heading, build, self.tables, self.others)
        with debug_mode(False):  # our own tested charts: schema validation would double their time
            return unless_damaged(told, None, _name(build), left_out)


def tell(run: RunFolder) -> Story:
    """The story of a run, from its available tables.

    Raises:
        UserError: A table is damaged, or none names its models.
    """
    left_out: list[str] = []
    sources = Sources.of(run)
    told = [sources.section(heading, build, left_out) for heading, build in sections()]
    shown_sections = [section for section in told if section is not None]
    shown = {name for section in shown_sections for figure in section.figures for name in figure.tables}
    further = partial(further_section, sources.tables, shown)
    if (rest := unless_damaged(further, None, "the further tables", left_out)) is not None:
        shown_sections.append(rest)
    figures = [figure for section in shown_sections for figure in section.figures]
    findings = unless_damaged(partial(scorecard, run, figures), [], "the findings", left_out)
    ids = {figure.id for figure in figures}
    screen = unless_damaged(partial(first_screen, run, sources.tables, ids), None, "the front page", left_out)
    return Story(
        models=sources.tables.models, sections=shown_sections, findings=findings, screen=screen, left_out=left_out
    )


def _section(
    heading: Section,
    build: Callable[[ModelTables], Section | None],
    tables: ModelTables,
    others: list[ModelTables],
) -> Section | None:
    """The section with the comparable panels of `others`, and notes on what is not drawn.

    Only the notes remain if nothing is drawn.
    """
    tables.forget()
    beside: dict[str, str] = {}
    try:
        section, refused = build(tables), []
    except AmbiguousModels as error:
        section, refused = None, [f"Not drawn: {error}"]
    if section and others:
        section, beside = facets(section, build, tables, others)
    notes = [*(section.notes if section else []), *tables.notes(beside), *refused]
    return replace(section or heading, notes=notes) if section or notes else None


def _name(build: Callable[..., object]) -> str:
    return f"the section on {build.__name__.removesuffix('_section').replace('_', ' ')}"
