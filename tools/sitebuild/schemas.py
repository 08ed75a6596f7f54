"""Tables as Markdown: what each holds, column by column."""

import importlib
from functools import cache
from typing import Any

from .escaping import cell, escaped

ROOMS = ("results", "corpus", "flow", "representations", "heads", "training", "findings", "studies")
PARTS = ("models", "measures", "claims", "stages")
"""Parts of subjects that export tables."""


@cache
def exported() -> dict[str, Any]:
    """Every exported table schema by its dotted path."""
    from infoflow._subjects import parts
    from infoflow.results import TableSchema

    found = {}
    rooms = [importlib.import_module(f"infoflow.{room}") for room in ROOMS]
    for room in [*rooms, *(module for part in PARTS for module in parts(part))]:
        for name, value in vars(room).items():
            if isinstance(value, TableSchema) and not name.startswith("_"):
                found[f"{room.__name__}.{name}"] = value
    return found


def described(schema) -> str:
    """A paragraph and the table of columns."""
    return "\n".join([f"The table `{schema.name}`: {escaped(schema.description)}", "", columns(schema)])


def columns(schema) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {cell(c.unit) or '–'} | {cell(c.description)} |" for c in schema.columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])
