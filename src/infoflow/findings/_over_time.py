"""What claims read of tables over training."""

import numpy as np

from ._model_group import TRANSLATION
from ._table import Reading, SeedRows, Table


def prunable(order: str) -> Reading:
    """Share of the heads that could go at each update, in one order."""
    table = Table("prunable_by_update", TRANSLATION, needs=("update", "order", "replicates"), course=True)
    return table.where(order=order, kind="all").reduce(_by_update)


def _by_update(rows: SeedRows) -> np.ndarray:
    ordered = SeedRows(rows.frame.sort_values("update"), rows.number)
    return ordered.numbers
