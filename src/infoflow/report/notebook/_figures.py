"""Notebook displays of a run: its figures by name, its claims, its tables, models and corpora."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import pandas as pd
from markupsafe import Markup

from infoflow.corpus import Corpus
from infoflow.findings import FINDINGS_TABLE
from infoflow.foundation import UserError
from infoflow.models import Anatomy, Model
from infoflow.results import RunFolder, ShownTables, Table

from .._figure import Section
from .._files import variants
from .._model_selection import ModelSelection
from .._story import Sources, sections
from .._summary import VERDICTS, ScorecardRow, findings_of, study_line, verdict_line, verdict_verb
from ._figure import Figure
from ._own_table import unit_of
from ._picture import folded, grid, paragraphs, shorter, summary, table_html
from ._plot import nearest

_WRITTEN = re.compile(r'<figure id="([^"]+)" aria-labelledby="[^"]*">\s*<h3[^>]*><a [^>]*>(.*?)</a></h3>', re.DOTALL)

_LINE = re.compile(r"-(\d+)(?:-(\d+))?$")  # suffix of the id of a figure with one line: the line's slot and style


class Figures(Mapping[str, Figure]):
    """The figures of a run's report, section by section: `run.figures["representations/mutual-information"]`.

    A name consists of the measure's package and a noun; the figure's id in the report is accepted, too. Access to one
    figure computes its whole section (about a second); iteration computes all sections.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._made: dict[str, dict[str, Figure]] = {}

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
        return self.get(str(key)) is not None

    def get(self, key: str, default: Figure | None = None) -> Figure | None:  # type: ignore[override]
        try:
            return self[key]
        except UserError:
            return default

    @property
    def models(self) -> ModelSelection:
        return self._sources.tables.models

    @property
    def questions(self) -> dict[str, str]:
        """Question of each figure, by name, read from the written report so that no figure is computed.

        Empty if there is no report.
        """
        if not self.run.report.exists():
            return {}
        page = self.run.report.read_text(encoding="utf-8", errors="replace")
        return {self._name(id): Markup(question).unescape() for id, question in _WRITTEN.findall(page)}

    def _section(self, heading: Section) -> dict[str, Figure]:
        if heading.id not in self._made:
            build = next(build for one, build in sections() if one.id == heading.id)
            stated = self._sources.section(heading, build, [])
            self._made[heading.id] = {
                (name := self._name(one.id)): Figure(
                    name, one, partial(variants, one, self._sources.tables), self.run.path.name
                )
                for one in (stated.figures if stated else [])
            }
        return self._made[heading.id]

    @cached_property
    def _sources(self) -> Sources:
        return Sources.of(self.run)

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
        why = ": its tables hold nothing for it" if known else ""
        got = f"{self.run.path.name} has no figure {key!r}{why}."
        return f"{got} Nearest: {', '.join(near)}. All of them: list(run.figures)."

    def _repr_html_(self) -> str:
        return str(self.listed())

    def listed(self) -> Markup:
        """Names and questions from the written report, folded."""
        rows = [(f'run.figures["{name}"]', question) for name, question in self.questions.items()]
        if not rows:
            return paragraphs("Figures: run.figures, each computed on first access; their names: list(run.figures).")
        return folded(f"{len(rows)} figures", grid(("figure", "what it asks"), rows))

    def __repr__(self) -> str:
        stated = self.questions
        how = f"{len(stated)} figures" if stated else "the figures"
        return f'<{how} of {self.run.path.name}, each computed on first access: run.figures["representations/…"]>'


def _may_hold(heading: Section, key: str) -> bool:
    """Whether a section could have a figure with this name or id."""
    known = [*heading.names, *heading.names.values()]
    return any(key == one or key.startswith(f"{one}-") for one in known) or key.startswith(f"{heading.id}/")


class Findings(pd.DataFrame):
    """The claims, one per row; selections of rows are plain frames."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        stated = sorted(findings_of(pd.DataFrame(self), []), key=lambda one: list(VERDICTS).index(one.verdict))
        decided = [one for one in stated if one.verdict != "not testable here"]
        rest = [one for one in stated if one.verdict == "not testable here"]
        parts = [paragraphs(verdict_line(stated)), grid(_HEADER, map(_row, decided)) if decided else ""]
        if rest:
            title = f"{len(rest)} that cannot be tested here, and why"
            rows = [(one.id, one.claim, shorter(one.reason, 200)) for one in rest]
            body = grid(("claim", "what it says", "why not"), rows)
            parts.append(folded(title, body))
        return str(Markup("").join(parts))

    def __repr__(self) -> str:
        counts = self.drop_duplicates("id")["verdict"].value_counts() if "verdict" in self else {}
        stated = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts)
        return f"Findings: {stated or 'none'}\nColumns: {', '.join(map(str, self.columns[:8]))}, …"


_HEADER = ("", "claim", "what it says", "here", "95% interval", "published")


def _row(one: ScorecardRow) -> tuple[str, ...]:
    unit = f" ({one.unit})" if " " in one.unit else f" {one.unit}"
    here = f"{one.effect}{unit if one.unit else ''}"
    return (f"{one.symbol} {one.verdict}", one.id, one.claim, here, one.interval, one.published)


# Notebook displays of runs, tables, models and corpora; all their texts are escaped.

_ROWS = 8  # rows of a table
_SENTENCES = 5  # sentences of a corpus


def run_shown(run: Any) -> str:
    """Title, models and verdicts of a `Run`, and its figures and tables by name, each with one sentence."""
    shown = run.figures.run
    manifest = shown.read()
    line = study_line(shown, run.figures.models) if len(run.tables) else "It holds no tables yet."
    parts = [paragraphs(str(manifest.get("title") or run.path.name), strong=True), paragraphs(line)]
    if FINDINGS_TABLE.name in run.tables:
        parts.append(paragraphs(_verdicts(run.tables[FINDINGS_TABLE.name])))
    parts += [run.figures.listed(), tables_shown(run.tables)]
    if run.folder.report.exists():
        parts.append(paragraphs(f"Report: {run.folder.report}", small=True))
    return str(Markup("").join(parts))


def tables_shown(tables: ShownTables) -> Markup:
    """Name, number of rows, measured quantity and unit."""
    stored = {name: tables.stored(name) for name in tables}
    rows = [
        (
            f'run.tables["{name}"]',
            f"{len(one.frame):,}",
            shorter(one.schema.description, 160),
            unit_of(one.schema),
        )
        for name, one in stored.items()
    ]
    return folded(f"{len(rows)} tables", grid(("table", "rows", "what it measures", "unit"), rows))


def table_shown(table: Table) -> str:
    """The measured quantity, and the first rows without replicates."""
    stated = paragraphs(shorter(table.schema.description, 200)) if getattr(table, "schema", None) else Markup("")
    return str(stated + table_html(table.shown.head(_ROWS), len(table)))


def model_shown(model: Model) -> str:
    """Stacks, layers and heads of a model, and where its parameters are."""
    limit = f"reads {model.max_tokens:,} tokens at most" if model.max_tokens else "reads texts of any length"
    facts = (model.task, f"{model.anatomy.num_parameters():,} parameters", limit, str(model.device))
    return str(summary(model.name, facts) + Markup(anatomy_shown(model.anatomy)))


def anatomy_shown(anatomy: Anatomy) -> str:
    """Stacks × layers × heads, then the parameters by component."""
    (head, *stacks), (names, *components) = anatomy.tables
    note = anatomy.outside_attention()
    parts = [
        grid(head, stacks),
        paragraphs(f"Note: {note}.") if note else "",
        folded("parameters", grid(names, components)),
    ]
    return str(Markup("").join(parts))


def corpus_shown(corpus: Corpus) -> str:
    """Size, what is known about each sentence, and the first sentences."""
    columns = [name for name in ("text", "translation") if name in corpus.columns]
    rows = [[shorter(getattr(sentence, name), 120) for name in columns] for sentence in corpus[:_SENTENCES]]
    facts = [f"{len(corpus):,} sentences", f"known about each: {', '.join(sorted(corpus.columns))}"]
    return str(summary(corpus.name, facts) + grid(columns, rows))


def _verdicts(findings: Any) -> str:
    counts = findings.drop_duplicates("id")["verdict"].value_counts()
    stated = [
        f"{sign} {counts[verdict]} {verdict_verb(verdict, counts[verdict])}"
        for verdict, sign in VERDICTS.items()
        if verdict in counts
    ]
    return f"Published claims: {', '.join(stated)}."
