"""A figure from one table: the report's own figure if there is one, otherwise one that fits the table's columns."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module

import pandas as pd

from infoflow._subjects import parts
from infoflow.foundation import UserError
from infoflow.results import KEYS, PAIR_KEYS, TableSchema

from .._files import variants
from .._story import Sources, sections
from ._figure import Figure
from ._own_table import ExternalRun, own_figure


def nearest(written: str, names: Iterable[str], number: int = 3) -> list[str]:
    """The names most similar to `written`, nearest first; parts after a slash are also matched by themselves.

    >>> nearest("information", ["heads/map", "representations/mutual-information", "training/scores"], 1)
    ['representations/mutual-information']
    """

    def likeness(name: str) -> float:
        parts = [name, name.rpartition("/")[2]]
        contained = written != "" and written in name
        return max(difflib.SequenceMatcher(None, written, part).ratio() for part in parts) + contained

    return sorted(dict.fromkeys(names), key=likeness, reverse=True)[:number]


_ROOMS = ("corpus", "models", "flow", "representations", "heads", "training", "findings", "results")
_PARTS = ("measures", "models", "claims")

_MODELS = {column.name for column in (*KEYS, *PAIR_KEYS)}


def plot(table: object, figure: str = "", *, table_name: str = "") -> Figure:
    """Return a figure of one table from `measure`, `compare` or `analyze`, or of a table of your own.

    Tables that the report draws get the same figure here, with its sentences and controls. Other tables need the column
    `value`, preferably with `low` and `high`; they are drawn by `layer`, as a map of `layer` and `head`, or with one
    dot per row.

    Args:
        table: A data frame; for several models, a mapping from their names to their tables.
        figure: The figure's name, such as "information-plane", if several figures show the table.
        table_name: The table's name if its columns do not identify it, such as "head_entropy".

    Raises:
        UserError: The table has neither a column `value` nor a known name, or no such figure shows it.
    """
    frame, schema = _joined(table)
    name = table_name or (schema.name if schema else _name_by_columns(frame))
    known = schema or known_tables().get(name)
    if known and set(known.column_names) <= {*frame.columns, *_MODELS}:
        run = ExternalRun(name, frame, known)
        found = _drawn_from(run, name)
        if figure:
            return _named(found, figure)
        if found:
            return next(iter(found.values()))
    if figure:
        raise UserError(f"The report draws no figure of this table. Got figure={figure!r}. Leave it out.")
    stated = own_figure(frame, known, name)
    return Figure(name or "table", stated, lambda: {"": stated})


def _joined(table: object) -> tuple[pd.DataFrame, TableSchema | None]:
    if isinstance(table, pd.DataFrame):
        return _checked(table), getattr(table, "schema", None)
    if not isinstance(table, Mapping) or not table:
        raise UserError(
            f"plot takes a table, or tables by the names of their models. Got {type(table).__name__}. "
            'Write plot({"small": tables_a["lens"], "large": tables_b["lens"]}).'
        )
    schemas = [getattr(one, "schema", None) for one in table.values()]
    if len(different := {one.name for one in schemas if one}) > 1:
        raise UserError(
            f"A figure shows one table of several models. Got the tables {', '.join(sorted(different)[:4])}. "
            f"Choose one: plot(tables[{min(different)!r}])."
        )
    parts = [_checked(one).assign(model=str(name)) for name, one in table.items()]
    return pd.concat(parts, ignore_index=True), schemas[0]


def _checked(table: object) -> pd.DataFrame:
    if not isinstance(table, pd.DataFrame):
        raise UserError(
            f"plot takes one table, a data frame. Got {type(table).__name__}. "
            'Choose one of the tables that measure returned: plot(tables["head_confidence"]).'
        )
    if table.empty:
        raise UserError("The table has no rows, so there is nothing to draw.")
    return pd.DataFrame(table)


def _drawn_from(run: ExternalRun, name: str) -> dict[str, Figure]:
    """The report's figures that show this table, by name."""
    sources = Sources.of(run)
    found = {}
    for heading, build in sections():
        stated = sources.section(heading, build, [])
        for one in stated.figures if stated else []:
            if name in one.tables:
                known, plain = heading.name_of(one.id), replace(one, findings=())
                found[known] = Figure(known, plain, partial(variants, plain, sources.tables))
    return found


def _named(found: Mapping[str, Figure], wanted: str) -> Figure:
    for name, figure in found.items():
        if wanted in (name, name.rpartition("/")[2], figure.id):
            return figure
    near = ", ".join(nearest(wanted, found)) or "none"
    raise UserError(f"This table is not drawn as {wanted!r}. It is drawn as: {near}.")


def _name_by_columns(frame: pd.DataFrame) -> str:
    """The library table with these columns; "" if there is none."""
    columns = set(frame.columns)
    fits = {
        name for name, one in known_tables().items() if {column.name for column in one.columns} - _MODELS <= columns
    }
    most = max((len(known_tables()[name].columns) for name in fits), default=0)
    best = sorted(name for name in fits if len(known_tables()[name].columns) == most)
    if len(best) > 1:
        raise UserError(
            f"Several tables have these columns: {', '.join(best[:8])}. Say which: plot(table, table_name={best[0]!r})."
        )
    return best[0] if best else ""


@cache
def known_tables() -> dict[str, TableSchema]:
    """Every table that the packages of measures declare, by name."""
    found: dict[str, TableSchema] = {}
    rooms = [import_module(f"infoflow.{room}") for room in _ROOMS]
    for room in [*rooms, *(module for name in _PARTS for module in parts(name))]:
        values = vars(room).values()
        tables = [getattr(value, "table", value) for value in list(values)]
        found |= {one.name: one for one in tables if isinstance(one, TableSchema)}
    return found
