"""Shapes of curves: steps, ratios, rank correlations; rows are draws, columns are layers."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np


def falls(curves: np.ndarray) -> np.ndarray:
    """How far each layer's value lies below the preceding one, (N, K − 1)."""
    return -np.diff(curves, axis=1)


def total_fall(curves: np.ndarray) -> np.ndarray:
    """First minus last, (N, 1)."""
    return curves[:, :1] - curves[:, -1:]


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rank correlation of each row, (N, 1), ties by average rank; NaN for a constant row."""
    from scipy.stats import rankdata  # slow import

    ranks = [rankdata(rows, axis=1) for rows in (first, second)]
    x, y = (rank - rank.mean(axis=1, keepdims=True) for rank in ranks)
    scale = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    return ((x * y).sum(axis=1) / np.where(scale == 0, np.nan, scale))[:, None]


def depth_correlation(curves: np.ndarray) -> np.ndarray:
    """Rank correlation of each row with depth, (N, 1)."""
    return spearman(curves, np.arange(curves.shape[1])[None])


def later_over_earlier(curves: np.ndarray) -> np.ndarray:
    """The ratio of every later value to every earlier one, (N, K (K − 1) / 2), in the order of `pair_names`."""
    pairs = np.array(list(combinations(range(curves.shape[1]), 2)))
    return curves[:, pairs[:, 1]] / curves[:, pairs[:, 0]]


def pair_names(num: int, first: int) -> list[str]:
    """Labels of all pairs of steps between layers, the later over the earlier."""
    return [f"{second}-{second + 1} over {one}-{one + 1}" for one, second in combinations(range(first, first + num), 2)]


def layer_names(num: int, first: int) -> list[str]:
    return [f"layer {layer}" for layer in range(first, first + num)]


def num_layers(curves: Mapping[str, np.ndarray]) -> int:
    """The number of layers of the shortest curve."""
    return min(curve.shape[1] for curve in curves.values())


def step_names(num: int, first: int) -> list[str]:
    """Labels of the steps between neighbouring layers, counted from `first`."""
    return [f"layers {layer}→{layer + 1}" for layer in range(first, first + num)]


def early_layer(num_layers: int) -> int:
    """The layer (from 1) a third of the way up: 2 of 6."""
    return max(1, round(num_layers / 3))


def middle_layer(num_layers: int) -> int:
    """The layer (from 1) half of the way up: 3 of 6."""
    return (num_layers + 1) // 2
