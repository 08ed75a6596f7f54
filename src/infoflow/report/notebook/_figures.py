"""The figures of a run by name, each computed on first access."""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from markupsafe import Markup

from infoflow.foundation import UserError
from infoflow.results import RunFolder

from .._figure import Section
from .._files import variants
from .._shown_models import ShownModels
from .._story import Sources, sections
from ._figure import Figure
from ._markup import folded, grid, paragraphs
from ._nearest import nearest

_WRITTEN = re.compile(r'<figure id="([^"]+)" aria-labelledby="[^"]*">\s*<h3[^>]*><a [^>]*>(.*?)</a></h3>', re.DOTALL)

_LINE = re.compile(r"-(\d+)(?:-(\d+))?$")  # suffix of the id of a one-line figure: its slot and style


class Figures(Mapping[str, Figure]):
    """The figures of a run's report, in its order: `run.figures["representations/mutual-information"]`.

    A name consists of the measure's room and a noun; the figure's id in the report is accepted, too. Access to one
    figure computes its whole section (about a second); iteration computes all sections.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._made: dict[str, dict[str, Figure]] = {}
        self._sources: Sources | None = None

    def __getitem__(self, key: str) -> Figure:
        for heading, _ in sections():
            if _may_hold(heading, key):
                found = self._section(heading)
                for name, figure in found.items():
                    if key in (name, figure.id):
                        return figure
        raise UserError(self._unknown(key))

    def __iter__(self) -> Iterator[str]:
        for heading, _ in sections():
            yield from self._section(heading)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        try:
            self[str(key)]
        except UserError:
            return False
        return True

    def get(self, key: str, default: Figure | None = None) -> Figure | None:  # type: ignore[override]
        try:
            return self[key]
        except UserError:
            return default

    @property
    def models(self) -> ShownModels:
        """The models that the figures show."""
        return self._told_from.tables.models

    @property
    def questions(self) -> dict[str, str]:
        """Question of each figure, by name, read from the written report so that no figure is computed.

        {} without a report.
        """
        if not self.run.report.exists():
            return {}
        page = self.run.report.read_text(encoding="utf-8", errors="replace")
        return {self._name(id): Markup(question).unescape() for id, question in _WRITTEN.findall(page)}

    def _section(self, heading: Section) -> dict[str, Figure]:
        if heading.id not in self._made:
            sources = self._told_from
            build = next(build for one, build in sections() if one.id == heading.id)
            told = sources.section(heading, build, [])
            self._made[heading.id] = {
                (name := self._name(one.id)): Figure(
                    name, one, partial(variants, one, sources.tables), self.run.path.name
                )
                for one in (told.figures if told else [])
            }
        return self._made[heading.id]

    @property
    def _told_from(self) -> Sources:
        self._sources = self._sources or Sources.of(self.run)
        return self._sources

    def _name(self, figure_id: str) -> str:
        """The name of a figure; a one-model figure ends in the model's name instead of its colour slot."""
        heading = next((one for one, _ in sections() if _may_hold(one, figure_id)), None)
        name = heading.name_of(figure_id) if heading else figure_id
        if not (numbers := _LINE.search(name)):
            return name
        slot, style = int(numbers[1]), int(numbers[2]) if numbers[2] else None
        owner = next((line.key for line in self.models.series if (line.slot, line.style) == (slot, style)), None)
        return f"{name[: numbers.start()]}-{owner}" if owner else name

    def _unknown(self, key: str) -> str:
        drawn = list(self.questions) or [name for heading, _ in sections() for name in heading.names.values()]
        near = nearest(str(key), drawn)
        known = any(key in heading.names.values() for heading, _ in sections())
        why = "its tables hold nothing for it" if known else ""
        got = f"{self.run.path.name} has no figure {key!r}{f': {why}' if why else ''}."
        return f"{got} Nearest: {', '.join(near)}. All of them: list(run.figures)."

    def _repr_html_(self) -> str:
        return str(self.listed())

    def listed(self) -> Markup:
        """Names and questions from the written report, folded."""
        rows = [(f'run.figures["{name}"]', question) for name, question in self.questions.items()]
        if not rows:
            return paragraphs("Figures: run.figures, made when asked for; their names: list(run.figures).")
        return folded(f"{len(rows)} figures", grid(("figure", "what it asks"), rows))

    def __repr__(self) -> str:
        told = self.questions
        how = f"{len(told)} figures" if told else "the figures"
        return f'<{how} of {self.run.path.name}, made when asked for: run.figures["representations/…"]>'


def _may_hold(heading: Section, key: str) -> bool:
    """Whether a figure with this name or id could belong to this section."""
    known = [*heading.names, *heading.names.values()]
    return any(key == one or key.startswith(f"{one}-") for one in known) or key.startswith(f"{heading.id}/")
