"""The first layer at which something can be read."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from infoflow.foundation import UserError

WITHIN = 0.01
"""Tolerance: one point of accuracy below the best layer."""


def first_readable(values: Sequence[float] | np.ndarray, within: float = WITHIN) -> int:
    """The first layer whose value is at most `within` below the best; NaN layers are skipped.

    Raises:
        UserError: No layer has a value.

    >>> first_readable([0.5, 0.89, 0.9, 0.88])
    1
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).any():
        raise UserError("The layer at which something becomes decodable needs values by layer. Got no finite value.")
    return int(np.flatnonzero(numbers >= np.nanmax(numbers) - within)[0])


def label_readable(table: pd.DataFrame, within: float = WITHIN, metric: str = "accuracy") -> pd.DataFrame:
    """The layer in which the label becomes readable, for each model in `LABEL_BY_LAYER`.

    One row for each combination of the other keys, with `layer`, its accuracy (`value`) and the best layer's (`best`).
    """
    kept = table[table["metric"] == metric].dropna(subset=["value"])
    estimates = {"value", "low", "high", "baseline", "count", "replicates", "layer"}
    keys = [column for column in table.columns if column not in estimates]
    rows = []
    for names, part in kept.groupby(keys, sort=False, dropna=False):
        ordered = part.sort_values("layer")
        at = first_readable(ordered["value"].to_numpy(dtype=np.float64), within)
        found = ordered.iloc[at]
        named = dict(zip(keys, names, strict=True))
        rows.append({**named, "layer": int(found["layer"]), "value": found["value"], "best": ordered["value"].max()})
    return pd.DataFrame(rows, columns=[*keys, "layer", "value", "best"])
