"""One number for several tuned models: their mean."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoflow.foundation import Interval, Scale, interval_over_seeds
from infoflow.results import TableSchema, estimate

from ._tables import TUNED


def mean_estimate(rows: Sequence[Mapping[str, Any]], scale: Scale, baseline: float | None = None) -> dict[str, Any]:
    """Estimate columns of the mean over seeds, from each seed's estimate on the same examples.

    The interval is over seeds and examples, see `interval_over_seeds`; with one seed it is that seed's own.

    Args:
        rows: The columns of `results.estimate_columns` for each seed.
        scale: Range of the number.
        baseline: Overrides the mean of the baselines.
    """
    value = float(np.mean([row["value"] for row in rows]))
    replicates = np.mean([np.asarray(row["replicates"], dtype=np.float64) for row in rows], axis=0)
    control = float(np.mean([row["baseline"] for row in rows])) if baseline is None else baseline
    count = int(rows[0]["count"])
    if len(rows) == 1:
        return estimate(value, replicates, control, count, ends=Interval(rows[0]["low"], rows[0]["high"]))
    values, drawn = np.array([row["value"] for row in rows]), np.array([row["replicates"] for row in rows], dtype=float)
    units, own = [(seed,) for seed in range(len(rows))], [(row["low"], row["high"]) for row in rows]
    usable = drawn[:, np.isfinite(drawn).all(axis=0)]
    return estimate(value, replicates, control, count, ends=interval_over_seeds(units, values, usable, own, scale))


def without_tuned(schema: TableSchema) -> TableSchema:
    """The schema without the columns that describe the tuning; the caller of a measure adds them."""
    told = {column.name for column in TUNED}
    columns = tuple(column for column in schema.columns if column.name not in told)
    return schema.named(schema.name, schema.description, columns)
