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
    lead="Measures that were given beside those of the package, each with the interval and the control that it states.",
    names={"own": "own/table"},
)
_METHOD = Method(
    id="own-measures",
    title="Measures of one's own",
    text="""
    These measures do not belong to the package: they were given with the command, as a file or as objects. They read
    the same sentences in the same pass as the others, in the model and in its untrained control. What each computes
    stands in its own code, and in the description of its table; a drawing is chosen by the columns of the table.
    """,
)


FURTHER = Section(
    id="further",
    title="What else was measured?",
    lead="Tables that no figure above shows, drawn by their columns: some are read by claims alone, others need a "
    "second table beside them.",
    names={"further": "further/table"},
)
_FURTHER_METHOD = Method(
    id="further-tables",
    title="Further tables",
    text="""
    What each number is, and its unit, stands in the description of its table and in the documentation of its measure.
    A drawing is chosen by the columns of the table.
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
