"""The whole report as data, before any HTML: what was studied, what was found, and the sections that show it."""

from dataclasses import dataclass

from altair.utils.schemapi import debug_mode

from infoflow.results import RunFolder

from ._alignment import alignment_section
from ._change import change_section
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

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def tell(run: RunFolder) -> Story:
    """The story of a run, from whichever tables it has."""
    cast = Cast.of(run)
    with debug_mode(False):  # charts are made by us, and tested: checking every mark by the schema doubles their time
        sections = [section for build in SECTIONS if (section := build(run, cast)) is not None]
    figures = [figure for section in sections for figure in section.figures]
    return Story(cast=cast, sections=sections, findings=scorecard(run, figures))
