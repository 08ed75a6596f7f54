"""Tables without a section of their own, drawn by their columns: user measures, and all remaining tables."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import SUFFIX, TABLES

from .._damaged import DAMAGE
from .._figure import Method, ReportFigure, Section
from .._model_tables import ModelTables
from ..notebook._own_table import own_figure

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
    lead="Tables that no figure above shows: some serve only claims, others need a second table.",
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


def own_section(tables: ModelTables) -> Section | None:
    """The section, or None without user measures."""
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
            notes.append(f"Not drawn: the table {name} ({len(frame):,} rows), which has no single value. {question}")
            continue
        try:
            figure = own_figure(frame.drop(columns="series", errors="ignore"), schema, name)
        except (UserError, *DAMAGE) as refused:
            reason = f" {refused}" if isinstance(refused, UserError) else ""
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
    section = heading.told_by(figures, tables.models, [frame for frame in read if "series" in frame])
    return replace(section, notes=notes) if section else None
