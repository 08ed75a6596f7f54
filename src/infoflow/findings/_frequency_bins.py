"""A measure by layer and frequency bin as one long curve, and the statistics that claims use."""

# N rows (estimate, seeds, draws), L layers, R bins of frequency rank

from collections.abc import Mapping
from functools import partial

import numpy as np

from infoflow.foundation import stream
from infoflow.representations import CHANGE_BY_FREQUENCY, INFLUENCE_BY_FREQUENCY
from infoflow.results import Spec

from ._finding import Control, Curves
from ._model_group import Absent
from ._shapes import spearman
from ._table import Reading, SeedRows, Table, check_layers

RANK_BINS = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
"""The published bins, by their lowest rank."""
_LEAST_BINS = 5
_NUM_REPLICAS = 1000


def change_by_rank(objective: Spec) -> Reading:
    """Change between consecutive layers 1-2 .. (L−1)-L, by published frequency bin."""
    return _grid(Table(CHANGE_BY_FREQUENCY.name, objective, needs=("layer", "rank_low")), 1)


def influence_by_rank(objective: Spec) -> Reading:
    """Influence on all other tokens in blocks 1..L (numbered from 0 in the table), by published frequency bin."""
    table = Table(INFLUENCE_BY_FREQUENCY.name, objective, needs=("block", "rank_low"))
    return _grid(table.where(pool="others"), 0)


def _grid(table: Table, first: int) -> Reading:
    """Concatenate the bins of all layers from the lowest; NaN where a bin has too few occurrences."""
    return Reading((table,), partial(_by_layer_and_bin, name=table.name, layer=table.needs[0], first=first), first)


def _by_layer_and_bin(rows: SeedRows, name: str, layer: str, first: int) -> np.ndarray:
    rows = rows.at((rows.frame[layer] >= first) & rows.frame["rank_low"].isin(RANK_BINS))
    layers, bins = (sorted(set(rows.frame[column])) for column in (layer, "rank_low"))
    if len(bins) < _LEAST_BINS:
        names = f"{len(bins)} of the published frequency bins"
        raise Absent(f"{name} has {names}, needed {_LEAST_BINS}: the vocabulary or the corpus is too small")
    check_layers(tuple(layers), first, name)
    if bool(rows.frame.duplicated([layer, "rank_low"]).to_numpy().any()):
        raise Absent(f"{name} holds a bin of a layer twice")
    numbers = rows.numbers
    grid = np.full((len(numbers), len(layers), len(RANK_BINS)), np.nan)
    grid[:, [layers.index(one) for one in rows.frame[layer]], list(map(RANK_BINS.index, rows.frame["rank_low"]))] = (
        numbers
    )
    return grid.reshape(len(numbers), -1)


def by_layer(curves: np.ndarray) -> np.ndarray:
    """The curves as (N, L, R') with the R' measured bins, rarest last; two NaN bins if fewer were measured."""
    grid_NLR = curves.reshape(len(curves), -1, len(RANK_BINS))
    measured = ~np.isnan(grid_NLR[0]).any(axis=0)
    return grid_NLR[:, :, measured] if measured.sum() > 1 else np.full_like(grid_NLR[:, :, :2], np.nan)


def rank_correlation(curves: np.ndarray) -> np.ndarray:
    """Rank correlation of the measure with frequency rank at each layer, (N, L); 1 if it rises with rarity."""
    grid_NLR = by_layer(curves)
    ranks = np.arange(grid_NLR.shape[2])[None]
    return spearman(grid_NLR.reshape(-1, grid_NLR.shape[2]), ranks).reshape(grid_NLR.shape[:2])


def frequent_over_rarest(curves: np.ndarray) -> np.ndarray:
    """Ratio of the most frequent bin's value to the rarest one's at each layer, (N, L)."""
    grid_NLR = by_layer(curves)
    return grid_NLR[:, :, 0] / grid_NLR[:, :, -1]


def rarest_over_next(curves: np.ndarray) -> np.ndarray:
    """Ratio of the rarest bin's value to that of the preceding bin at each layer, (N, L)."""
    grid_NLR = by_layer(curves)
    return grid_NLR[:, :, -1] / grid_NLR[:, :, -2]


def permuted_bins(reads: Mapping[str, Reading]) -> Control:
    """The same numbers with each model's bins in random order, the same for all its layers."""
    return Control(name="permuted frequency bins", reads=reads, transform=_permute, permuted=("bins", _fewest_bins))


def _fewest_bins(curves: Curves) -> int:
    return min(by_layer(curve).shape[2] for curve in curves.values())


def _permute(curves: dict[str, np.ndarray]) -> Curves:
    replicas = {}
    for name, curve in curves.items():
        grid_1LR = by_layer(curve)
        random = stream("findings", "permuted bins", name).random((_NUM_REPLICAS, 1, grid_1LR.shape[2]))
        order_NLR = np.broadcast_to(random.argsort(axis=2), (_NUM_REPLICAS, *grid_1LR.shape[1:]))
        permuted = np.full((_NUM_REPLICAS, grid_1LR.shape[1], len(RANK_BINS)), np.nan)
        permuted[:, :, : grid_1LR.shape[2]] = np.take_along_axis(
            np.broadcast_to(grid_1LR, order_NLR.shape), order_NLR, axis=2
        )
        replicas[name] = permuted.reshape(_NUM_REPLICAS, -1)
    return replicas
