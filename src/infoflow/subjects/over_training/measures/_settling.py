"""Tables of convergence: normalised by each layer's start, with the time of settling."""

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import KEYS, Column, TableSchema
from infoflow.training import CLOCKS, of_whole_course

from ._convergence import normalised_convergence
from ._convergence_measure import CONVERGENCE, DISPLACEMENT

_CURVE = ["stack", "layer", "kind", "reference", "similarity"]

CONVERGENCE_OVER_TRAINING = CONVERGENCE.named(
    CONVERGENCE.name,
    CONVERGENCE.description,
    (
        *KEYS,
        *CLOCKS,
        *CONVERGENCE.columns,
        Column(
            name="normalised",
            dtype="float64",
            unit="1",
            description="share of the way from the similarity at step 0 to 1; NaN where the layer began there, or step "
            "0 is not there",
        ),
    ),
)
CONVERGENCE_TIME = TableSchema(
    name="convergence_time",
    version=1,
    description="When each layer settled: the last upward crossing of .9 of the way from its start to the reference, "
    "between two checkpoints.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        *(column for column in CONVERGENCE.columns if column.name in _CURVE),
        Column(name="time", dtype="float64", unit="updates", description="linear in log2 t; NaN: never"),
        Column(name="before", dtype="float64", unit="updates", description="the checkpoint before it"),
        Column(name="after", dtype="float64", unit="updates", description="the checkpoint at or after it"),
        Column(
            name="null_time",
            dtype="float64",
            unit="updates",
            description="the same of the null: when final weights with noise as large as what is left of the way would "
            "have settled; NaN: never, or another reference",
        ),
        Column(name="area", dtype="float64", unit="1", description="mean of the normalised curve over log2 t"),
    ),
)


def settled(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `CONVERGENCE_OVER_TRAINING` and `CONVERGENCE_TIME` for one model.

    Args:
        frame: The rows of `LayerConvergence` at every checkpoint, with `KEYS` and `CLOCKS`.
    """
    ordered = frame.sort_values("update", kind="stable").reset_index(drop=True)
    normalised, times = np.full(len(ordered), np.nan), list[dict[str, Any]]()
    for keys, own in _curves(ordered):
        steps = own["update"].to_numpy()
        if steps[0] != 0 or np.isnan(own["value"]).any():
            continue
        found = normalised_convergence(steps, own["value"].to_numpy())
        normalised[own.index.to_numpy()] = found.values
        nulls = own["null"].to_numpy(dtype=float)
        null_time = float("nan") if np.isnan(nulls).any() else normalised_convergence(steps, nulls).time
        more = {
            "null_time": null_time,
            "time": found.time,
            "before": found.before,
            "after": found.after,
            "area": found.area,
        }
        times.append({**of_whole_course(own.iloc[0].to_dict()), **keys, **more})
    return (
        CONVERGENCE_OVER_TRAINING.conform(ordered.assign(normalised=normalised)),
        CONVERGENCE_TIME.conform(pd.DataFrame(times, columns=CONVERGENCE_TIME.column_names)),
    )


def _curves(frame: pd.DataFrame) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """The curves over training that converge to 1: similarities to fixed references."""
    fixed = frame[(frame["similarity"] != DISPLACEMENT) & frame["reference"].isin(["final", "other-seed"])]
    for values, own in fixed.groupby(_CURVE, sort=False):
        yield dict(zip(_CURVE, values, strict=True)), own
