"""The same sums in other units: per parameter, as shares, within a layer or over the whole map of heads."""

import numpy as np
import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import KEYS

GROUP_NORMALISATIONS = ("sum", "per_parameter", "share", "abs_share", "share_no_emb")
HEAD_NORMALISATIONS = ("sum", "head_abs", "head_layer", "head_map")

_RUN = (*(column.name for column in KEYS), "set", "term")


def normalised(table: pd.DataFrame, normalisation: str) -> pd.Series:
    r"""A column of `allocation_groups` (or `allocation_heads`) in other units, row by row.

    | normalisation | formula | use |
    |---|---|---|
    | `sum` | $A_g$ | what the group did to the loss |
    | `per_parameter` | $A_g / \lvert g \rvert$ | W1 and W2 hold four times as many weights as queries |
    | `share` | $A_g / \sum_g A_g$ | adds up to 1; may be negative or above 1 |
    | `abs_share` | $\lvert A_g\rvert / \sum_g \lvert A_g \rvert$ | where the signed total is small |
    | `share_no_emb` | `share` without embeddings (NaN there) | embeddings dominate early on |
    | `head_abs` | $A_{lj} / \sum_j \lvert A_{lj} \rvert$, in each layer | heads within a layer |
    | `head_layer` | $A_{lj} / \sum_j A_{lj}$, in each layer | the same; unstable where heads cancel |
    | `head_map` | $A_{lj} / \sum_{lj} \lvert A_{lj} \rvert$ | the whole map of a stack and kind |

    Sums are over the rows of one model, set and term of the loss. Cells outside heads are left out of sums over heads
    (NaN there).

    Raises:
        UserError: The normalisation is unknown, or belongs to the other table.
    """
    known = HEAD_NORMALISATIONS if "head" in table else GROUP_NORMALISATIONS
    if normalisation not in known:
        raise UserError(f"normalisation must be one of {', '.join(known)} for this table. Got {normalisation}.")
    value = table["value"].astype(float)
    if normalisation == "sum":
        return value
    if normalisation == "per_parameter":
        return value / table["parameters"]
    if normalisation == "share_no_emb":
        value = value.where(table["component"] != "embeddings")
    if "head" in table:
        value = value.where(table["head"] >= 0)
    keys = [name for name in _RUN if name in table]
    keys += {"head_map": ["stack", "kind"]}.get(normalisation, ["stack", "kind", "layer"] if "head" in table else [])
    sizes = value.abs() if normalisation in ("abs_share", "head_abs", "head_map") else value
    total = sizes.groupby([table[name] for name in keys]).transform("sum") if keys else float(sizes.sum())
    result = (value.abs() if normalisation == "abs_share" else value) / total
    return result.replace([np.inf, -np.inf], np.nan)
