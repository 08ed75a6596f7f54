"""One number of several tuned models: the mean of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoflow.foundation import Scale
from infoflow.results import TableSchema, estimate

from ._tables import TUNED


def mean_estimate(
    rows: Sequence[Mapping[str, Any]], scale: Scale = "any", baseline: float | None = None
) -> dict[str, Any]:
    """The columns of an estimate for the mean over seeds, from those of each seed on the same examples.

    The interval is that of the mean over other examples: replicates are paired, so theirs are averaged one by one.

    Args:
        rows: Of each seed the columns of `results.estimate_columns`.
        scale: What the number can be.
        baseline: In place of the mean of theirs.
    """
    value = float(np.mean([row["value"] for row in rows]))
    replicates = np.mean([np.asarray(row["replicates"], dtype=np.float64) for row in rows], axis=0)
    control = float(np.mean([row["baseline"] for row in rows])) if baseline is None else baseline
    return estimate(value, replicates, control, int(rows[0]["count"]), scale=scale)


def without_tuned(schema: TableSchema) -> TableSchema:
    """The schema without the columns that say how a model was tuned: who calls a measure knows them."""
    told = {column.name for column in TUNED}
    return TableSchema(
        name=schema.name,
        version=schema.version,
        description=schema.description,
        columns=tuple(column for column in schema.columns if column.name not in told),
    )
