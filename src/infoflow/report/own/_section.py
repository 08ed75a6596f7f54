"""What the user's own measures found: each table drawn by its columns, since no section knows it."""

from dataclasses import replace

from infoflow.foundation import UserError

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


def own_section(tables: ModelTables) -> Section | None:
    """The section, or None where the user gave no measures."""
    figures: list[ReportFigure] = []
    notes = []
    for name in tables.own:
        frame = tables.get(name)
        if frame is None:
            continue
        try:
            schema = tables.schema(name)
            figure = own_figure(frame.drop(columns="series"), schema, name)
        except UserError as refused:
            notes.append(f"Not drawn: the table {name}. {refused}")
            continue
        question, _, rest = schema.description.strip().partition("\n")
        figures.append(
            replace(
                figure,
                id=f"own-{name.replace('_', '-')}",
                question=question or name,
                how_to_read=[*figure.how_to_read, *([rest.strip()] if rest.strip() else [])],
                method=_METHOD,
                tables=(name,),
            )
        )
    if not figures:
        return replace(OWN, notes=notes) if notes else None
    section = OWN.told_by(figures, tables.models, [tables[name] for figure in figures for name in figure.tables])
    return replace(section, notes=notes) if section else None
