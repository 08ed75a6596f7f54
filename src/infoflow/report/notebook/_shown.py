"""Notebook displays of runs, tables, models and corpora; all their texts are escaped."""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from infoflow.corpus import Corpus
from infoflow.findings import FINDINGS_TABLE
from infoflow.models import Anatomy, Model
from infoflow.results import ShownTables, Table

from .._summary import VERDICTS, study_line, verdict_verb
from ._markup import folded, grid, paragraphs, shorter, summary, table_html

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
    parts += [run.figures.listed(), tables_html(run.tables)]
    if run.folder.report.exists():
        parts.append(paragraphs(f"Report: {run.folder.report}", small=True))
    return str(Markup("").join(parts))


def tables_shown(tables: ShownTables) -> str:
    """See `tables_html`."""
    return str(tables_html(tables))


def tables_html(tables: ShownTables) -> Markup:
    """Name, number of rows, measured quantity and unit."""
    stored = {name: tables.stored(name) for name in tables}
    rows = [
        (
            f'run.tables["{name}"]',
            f"{len(one.frame):,}",
            shorter(one.schema.description, 160),
            _unit(one.schema.columns),
        )
        for name, one in stored.items()
    ]
    return folded(f"{len(rows)} tables", grid(("table", "rows", "what it measures", "unit"), rows))


def table_shown(table: Table) -> str:
    """The measured quantity, and the first rows without replicates."""
    told = paragraphs(shorter(table.schema.description, 200)) if getattr(table, "schema", None) else Markup("")
    return str(told + table_html(table.shown.head(_ROWS), len(table)))


def model_shown(model: Model) -> str:
    """Stacks, layers and heads of a model, and where its parameters are."""
    limit = f"reads {model.max_tokens:,} tokens at most" if model.max_tokens else "reads texts of any length"
    facts = (model.task, f"{model.anatomy.num_parameters():,} parameters", limit, str(model.device))
    return str(summary(model.name, facts) + Markup(anatomy_shown(model.anatomy)))


def anatomy_shown(anatomy: Anatomy) -> str:
    """Stacks × layers × heads, then the parameters by component."""
    (head, *stacks), (names, *components) = anatomy.tables
    note = anatomy.beside_attention()
    parts = [
        grid(head, stacks),
        paragraphs(f"Note: {note}.") if note else "",
        folded("parameters", grid(names, components)),
    ]
    return str(Markup("").join(parts))


def corpus_shown(corpus: Corpus) -> str:
    """Size, known properties of each sentence, and the first sentences."""
    columns = [name for name in ("text", "translation") if name in corpus.columns]
    rows = [[shorter(getattr(sentence, name), 120) for name in columns] for sentence in corpus[:_SENTENCES]]
    facts = [f"{len(corpus):,} sentences", f"known of each: {', '.join(sorted(corpus.columns))}"]
    return str(summary(corpus.name, facts) + grid(columns, rows))


def _verdicts(findings: Any) -> str:
    counts = findings.drop_duplicates("id")["verdict"].value_counts()
    told = [
        f"{sign} {counts[verdict]} {verdict_verb(verdict, counts[verdict])}"
        for verdict, sign in VERDICTS.items()
        if verdict in counts
    ]
    return f"Published claims: {', '.join(told)}."


def _unit(columns: Iterable[Any]) -> str:
    return next((column.unit for column in columns if column.name == "value"), "")
