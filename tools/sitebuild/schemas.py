"""Tables as Markdown: what each holds, column by column."""

import importlib
from functools import cache
from typing import Any

from .escaping import cell, escaped

ROOMS = (
    "results", "corpus", "flow", "representations", "heads", "probing", "training", "dynamics", "pruning", "alignment",
    "over_training", "adaptation", "retrieval", "evidence", "findings", "studies",
)  # fmt: skip


@cache
def exported() -> dict[str, Any]:
    """Every exported table schema by its dotted path."""
    from infoflow.results import TableSchema

    found = {}
    for room in ROOMS:
        for name, value in vars(importlib.import_module(f"infoflow.{room}")).items():
            if isinstance(value, TableSchema) and not name.startswith("_"):
                found[f"infoflow.{room}.{name}"] = value
    return found


def described(schema) -> str:
    """A paragraph and the table of columns."""
    return "\n".join([f"The table `{schema.name}`: {escaped(schema.description)}", "", columns(schema)])


def columns(schema) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {cell(c.unit) or '–'} | {cell(c.description)} |" for c in schema.columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])
