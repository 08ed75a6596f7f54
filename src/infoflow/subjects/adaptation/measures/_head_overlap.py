"""Whether the same heads matter for different tasks."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.foundation import UserError
from infoflow.heads import expected_jaccard
from infoflow.results import Column, TableSchema, estimate, estimate_columns, scale_of

_KEYS = ["stack", "kind", "layer", "head"]
KEPT = 0.25
"""Share of the heads that count as most important."""

HEAD_OVERLAP = TableSchema(
    name="head_overlap",
    version=2,
    description="Do two tasks need the same heads in models tuned from one pretrained model?",
    columns=(
        Column(name="task_a", dtype="string", unit="", description="one task"),
        Column(name="task_b", dtype="string", unit="", description="the other"),
        Column(
            name="measure",
            dtype="string",
            unit="",
            description="spearman: of what each head is worth; jaccard: of the quarter of heads that is worth most",
        ),
        *estimate_columns("1", "agreement of the two tasks", "expected of unrelated tasks", "heads"),
    ),
)


def head_overlap(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    r"""The table `HEAD_OVERLAP` for every pair of tasks.

    $$ \rho(v_a, v_b), \qquad J = \frac{|A \cap B|}{|A \cup B|} $$

    v is the cost of each head (`value` of `TUNING_HEADS`: the rise of the task's loss without it), A the quarter of the
    heads with the highest cost for a task. Intervals are over examples, separately for each task. Chance: 0, and the
    expected overlap of two random quarters.

    Args:
        tables: `TUNING_HEADS` by task, for one model and method.

    Raises:
        UserError: The tables' models have different heads.
    """
    worth = {name: _values(table) for name, table in tables.items()}
    rows: list[dict[str, Any]] = []
    for a, b in combinations(worth, 2):
        if not worth[a][0].equals(worth[b][0]):
            raise UserError(
                f"Heads can only be compared between tasks of the same model. {a} and {b} have different "
                "heads: use tables of models "
                "tuned from the same pretrained model."
            )
        (_, first), (_, second) = worth[a], worth[b]
        kept = max(1, round(KEPT * first.shape[1]))
        chance = expected_jaccard(first.shape[1], kept, kept)
        for measure, agree, baseline in (("spearman", _spearman, 0.0), ("jaccard", _jaccard, chance)):
            values = np.array([agree(x, y) for x, y in zip(first, second, strict=True)])
            found = estimate(float(values[0]), values[1:], baseline, first.shape[1], scale=scale_of(measure))
            rows.append({"task_a": a, "task_b": b, "measure": measure, **found})
    return HEAD_OVERLAP.conform(pd.DataFrame(rows, columns=HEAD_OVERLAP.column_names))


def _values(table: pd.DataFrame) -> tuple[pd.DataFrame, Float[np.ndarray, "row head"]]:
    """Keys of the heads in order, and the cost of each: the estimate, then its replicates."""
    ordered = table.sort_values(_KEYS, kind="stable").reset_index(drop=True)
    replicates = np.array([np.asarray(one, dtype=np.float64) for one in ordered["replicates"]]).T
    return ordered[_KEYS], np.concatenate([ordered["value"].to_numpy(dtype=np.float64)[None], replicates])


def _spearman(x: Float[np.ndarray, " head"], y: Float[np.ndarray, " head"]) -> float:
    from scipy.stats import spearmanr  # slow import

    constant = len(np.unique(x)) < 2 or len(np.unique(y)) < 2
    return float("nan") if constant else float(spearmanr(x, y).statistic)


def _jaccard(x: Float[np.ndarray, " head"], y: Float[np.ndarray, " head"]) -> float:
    first, second = (_most(one) for one in (x, y))
    return len(first & second) / len(first | second)


def _most(values: Float[np.ndarray, " head"]) -> set[int]:
    """Indices of the most important quarter; ties in order."""
    return set(np.argsort(-values, kind="stable")[: max(1, round(KEPT * len(values)))].tolist())
