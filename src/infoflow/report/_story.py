"""The whole report as data, before any HTML: what was studied, what was found, and the sections that show it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from altair.utils.schemapi import debug_mode

from infoflow.foundation import UserError
from infoflow.results import RunFolder

from ._alignment import alignment_section
from ._change import change_section
from ._damaged import kind_of, unless_damaged
from ._dynamics import dynamics_section
from ._figure import Figure, Section
from ._heads import heads_section
from ._knowledge import knowledge_section
from ._language import Cast
from ._lenses import lenses_section
from ._neighbours import neighbours_section
from ._pruning import pruning_section
from ._similarity import similarity_section
from ._space import space_section
from ._summary import Finding, scorecard
from ._training import training_section

# In the order in which data flows; a section without tables leaves itself out.
SECTIONS = (
    knowledge_section,
    change_section,
    similarity_section,
    space_section,
    lenses_section,
    neighbours_section,
    alignment_section,
    heads_section,
    pruning_section,
    training_section,
    dynamics_section,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Story:
    """Everything that the page tells."""

    cast: Cast
    sections: list[Section]
    findings: list[Finding]
    left_out: list[str]  # what damaged tables or a damaged run.json left out, in words

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def tell(run: RunFolder) -> Story:
    """The story of a run, from whichever tables it has.

    Raises:
        UserError: A table is damaged, or none of them says which models it is about.
    """
    try:
        cast = Cast.of(run)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{run.path} is damaged: its tables or run.json do not say which models they are about ({kind_of(error)}). "
            "Run again what wrote it."
        ) from error
    left_out: list[str] = []
    with debug_mode(False):  # charts are made by us, and tested: checking every mark by the schema doubles their time
        told = [unless_damaged(partial(build, run, cast), None, _name(build), left_out) for build in SECTIONS]
    sections = [section for section in told if section is not None]
    figures = [figure for section in sections for figure in section.figures]
    findings = unless_damaged(partial(scorecard, run, figures), [], "the findings", left_out)
    return Story(cast=cast, sections=sections, findings=findings, left_out=left_out)


def _name(build: Callable[..., object]) -> str:
    return f"the section on {build.__name__.removesuffix('_section').replace('_', ' ')}"
