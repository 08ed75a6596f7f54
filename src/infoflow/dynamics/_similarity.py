"""How alike two trainings distributed the work: share vectors over layers × components, and whether objectives part."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata

from infoflow.foundation import stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns

NORMALISATIONS = ("share", "per_parameter")
METRICS = ("spearman", "cosine")
_COMPARED = ("query", "key", "value", "output", "mlp_in", "mlp_out", "norm")
_NUM_PERMUTATIONS = 2000

_ENDS = tuple(
    Column(name=f"{name}_{end}", dtype=dtype, unit="", description=text)  # type: ignore[arg-type]
    for end in "ab"
    for name, dtype, text in (
        ("model", "string", "name of the model"),
        ("objective", "string", "what it was trained for"),
        ("seed", "int64", "seed of initialisation, data order and noise"),
        ("stack", "string", "encoder or decoder"),
    )
)
ALLOCATION_SIMILARITY = TableSchema(
    name="allocation_similarity",
    version=1,
    description="How alike the loss changes of two trainings are spread over layers × components (self-attention, feed-"
    "forward and norms inside the blocks; embeddings, heads and cross-attention are left out), on the train set.",
    columns=(
        *_ENDS,
        Column(name="normalisation", dtype="string", unit="", description="share, or per_parameter"),
        Column(
            name="metric", dtype="string", unit="", description="spearman or cosine; cosine follows the largest groups"
        ),
        *estimate_columns(
            "similarity in [-1, 1]",
            "similarity of the two share vectors",
            "expected when the entries of one are shuffled",
            "entries of a share vector",
        ),
    ),
)


def compare_trainings(groups: pd.DataFrame) -> pd.DataFrame:
    """The table `allocation_similarity` of all pairs of stacks in `allocation_groups` of several models.

    Stacks of equal depth are compared, also those of one objective under two seeds; not a model's two stacks with each
    other. The sign is kept: a group that hurt is not one that helped. Replicates pair the sentences of both trainings.
    """
    inside = (groups["set"] == "train") & (groups["layer"] >= 0) & (groups["kind"] != "cross")
    compared = groups["component"].isin(_COMPARED) & (groups["term"] == _first_term(groups))
    groups = groups.loc[inside & compared]
    keys = ["model", "objective", "seed", "stack"]
    vectors = {key: rows.sort_values(["layer", "component", "kind"]) for key, rows in groups.groupby(keys, sort=True)}
    rows = [
        row
        for (one, first), (other, second) in combinations(vectors.items(), 2)
        if one[0] != other[0] and _alike(first, second)
        for row in _rows(one, first, other, second)
    ]
    return ALLOCATION_SIMILARITY.conform(pd.DataFrame(rows, columns=pd.Index(ALLOCATION_SIMILARITY.column_names)))


def similarity(
    first: Float[np.ndarray, "... entry"], second: Float[np.ndarray, "... entry"], metric: str
) -> np.ndarray:
    """Rank correlation (ties by mean rank) or cosine of vectors along the last axis; NaN for a constant one."""
    if metric == "spearman":
        first, second = (rankdata(values, axis=-1) for values in (first, second))
        first, second = (values - values.mean(axis=-1, keepdims=True) for values in (first, second))
    scale = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(axis=-1) / np.where(scale == 0, np.nan, scale))


def objective_permutation_test(similarities: Float[np.ndarray, "run run"], objectives: Sequence[str]) -> float:
    """How often labels shuffled among runs part them as clearly, by mean similarity within minus between objectives.

    The observed labelling is one of the shuffled ones, so that p is uniform (or larger) where labels mean nothing.
    """
    labels, rng = np.asarray(objectives), stream("objective-permutation", len(objectives))
    upper = np.triu_indices(len(labels), 1)

    def gap(order: np.ndarray) -> float:
        same = labels[order][upper[0]] == labels[order][upper[1]]
        values = similarities[upper]
        return float(values[same].mean() - values[~same].mean())

    observed = gap(np.arange(len(labels)))
    shuffled = [gap(rng.permutation(len(labels))) for _ in range(_NUM_PERMUTATIONS)]
    return (1 + sum(value >= observed - 1e-12 for value in shuffled)) / (1 + _NUM_PERMUTATIONS)


def _first_term(groups: pd.DataFrame) -> pd.Series:
    """Each row's model's first term: the other terms have tables of their own rows."""
    return groups.groupby("model")["term"].transform("first")


def _alike(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    columns = ["layer", "component", "kind"]
    return len(first) == len(second) and bool((first[columns].to_numpy() == second[columns].to_numpy()).all())


def _rows(one: tuple, first: pd.DataFrame, other: tuple, second: pd.DataFrame) -> list[dict[str, Any]]:
    names = ("model", "objective", "seed", "stack")
    keys = {
        f"{name}_{end}": value
        for end, key in zip("ab", (one, other), strict=True)
        for name, value in zip(names, key, strict=True)
    }
    rows = []
    for normalisation, metric in product(NORMALISATIONS, METRICS):
        values, replicates = zip(*(_vectors(frame, normalisation) for frame in (first, second)), strict=True)
        drawn = similarity(*replicates, metric) if min(map(len, replicates)) else np.empty(0)
        numbers = estimate(float(similarity(*values, metric)), drawn, _by_chance(*values, metric), len(first))
        rows.append({**keys, "normalisation": normalisation, "metric": metric, **numbers})
    return rows


def _vectors(frame: pd.DataFrame, normalisation: str) -> tuple[np.ndarray, np.ndarray]:
    """The vector and its replicates (R, entry), as shares of the compared groups' sum or per parameter."""
    replicates = np.stack([np.asarray(row, dtype=float) for row in frame["replicates"]]).T
    sizes = frame["parameters"].to_numpy(dtype=float)
    vectors = [frame["value"].to_numpy(dtype=float), replicates]
    if normalisation == "per_parameter":
        vectors = [values / sizes for values in vectors]
    shared = [values / np.abs(values.sum(axis=-1, keepdims=True)) for values in vectors]
    return -shared[0], -shared[1]  # what helped is positive


def _by_chance(first: np.ndarray, second: np.ndarray, metric: str) -> float:
    if metric == "spearman":
        return 0.0
    scale = np.linalg.norm(first) * np.linalg.norm(second)
    return float(first.sum() * second.sum() / (len(first) * scale)) if scale else np.nan
