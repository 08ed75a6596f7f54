"""Normalisations by hand."""

import numpy as np
import pandas as pd
import pytest

from infoflow.dynamics import normalised
from infoflow.foundation import UserError

GROUPS = pd.DataFrame(
    {
        "model": ["a"] * 3 + ["b"],
        "set": "train",
        "component": ["embeddings", "query", "mlp_in", "query"],
        "parameters": [10, 2, 4, 5],
        "value": [-6.0, 1.0, -3.0, -2.0],
    }
)
HEADS = pd.DataFrame(
    {
        "model": "a",
        "stack": "encoder",
        "kind": "self",
        "layer": [0, 0, 0, 1, 1],
        "head": [0, 1, -1, 0, 1],
        "value": [-3.0, 1.0, 9.0, -2.0, -4.0],
    }
)


@pytest.mark.parametrize(
    ("table", "normalisation", "expected"),
    [
        (GROUPS, "sum", [-6, 1, -3, -2]),
        (GROUPS, "per_parameter", [-0.6, 0.5, -0.75, -0.4]),
        (GROUPS, "share", [6 / 8, -1 / 8, 3 / 8, 1]),
        (GROUPS, "abs_share", [0.6, 0.1, 0.3, 1]),
        (GROUPS, "share_no_emb", [np.nan, -0.5, 1.5, 1]),
        (HEADS, "head_abs", [-0.75, 0.25, np.nan, -1 / 3, -2 / 3]),
        (HEADS, "head_layer", [1.5, -0.5, np.nan, 1 / 3, 2 / 3]),
        (HEADS, "head_map", [-0.3, 0.1, np.nan, -0.2, -0.4]),
    ],
)
def test_each_is_its_formula(table: pd.DataFrame, normalisation: str, expected: list[float]) -> None:
    np.testing.assert_allclose(normalised(table, normalisation), expected)


def test_normalisations_of_the_other_table_are_refused() -> None:
    with pytest.raises(UserError, match="one of sum, head_abs, head_layer, head_map"):
        normalised(HEADS, "share")
    with pytest.raises(UserError, match="Got head_map"):
        normalised(GROUPS, "head_map")
