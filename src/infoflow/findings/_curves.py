"""Curves that several claims share, over layers and frequency bins, and the statistics of their shapes."""

# N rows (estimate, seeds, draws), L layers, R bins of frequency rank

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np

from infoflow import representations
from infoflow.foundation import stream
from infoflow.results import Spec

from ._finding import GAIN, Condition, Control, Curves, exceeds
from ._model_group import CAUSAL, MASKED, NAMES, TRANSLATION, Absent
from ._table import Reading, SeedRows, Table, check_layers


def exceeds_others(what: str, curves: Curves, most: Spec, others: Sequence[Spec]) -> list[Condition]:
    """Conditions that the share of the objective `most` exceeds that of each other; curves are named by objective."""
    return [
        exceeds(f"{what} {NAMES[other]}", curves[most.name] - curves[other.name], 0.0, "share", bounds=GAIN)
        for other in others
    ]


# Shapes of curves: steps, ratios and rank correlations. Rows are draws and columns are layers.
def falls(curves: np.ndarray) -> np.ndarray:
    """How far each layer's value lies below that of the preceding layer, (N, K − 1)."""
    return -np.diff(curves, axis=1)


def total_fall(curves: np.ndarray) -> np.ndarray:
    """The first layer's value minus the last one's, (N, 1)."""
    return curves[:, :1] - curves[:, -1:]


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rank correlation of the rows of `first` and `second`, (N, 1), ties by average rank; NaN for a constant row."""
    return representations.spearman_rows(first, second)[:, None]


def depth_correlation(curves: np.ndarray) -> np.ndarray:
    """Rank correlation of each curve with depth, (N, 1)."""
    return spearman(curves, np.arange(curves.shape[1])[None])


def later_over_earlier(curves: np.ndarray) -> np.ndarray:
    """The ratio of every later value to every earlier one, (N, K (K − 1) / 2), in the order of `pair_names`."""
    pairs = np.array(list(combinations(range(curves.shape[1]), 2)))
    return curves[:, pairs[:, 1]] / curves[:, pairs[:, 0]]


def pair_names(num: int, first: int) -> list[str]:
    """Labels of all pairs of steps between layers, in the form `later over earlier`."""
    return [f"{second}-{second + 1} over {one}-{one + 1}" for one, second in combinations(range(first, first + num), 2)]


def layer_names(num: int, first: int) -> list[str]:
    return [f"layer {layer}" for layer in range(first, first + num)]


def num_layers(curves: Mapping[str, np.ndarray]) -> int:
    return min(curve.shape[1] for curve in curves.values())


def step_names(num: int, first: int) -> list[str]:
    """Labels of the steps between neighbouring layers, counted from `first`."""
    return [f"layers {layer}→{layer + 1}" for layer in range(first, first + num)]


def early_layer(num_layers: int) -> int:
    """The layer a third of the way up, counted from 1: layer 2 of 6."""
    return max(1, round(num_layers / 3))


def middle_layer(num_layers: int) -> int:
    """The layer halfway up, counted from 1: layer 3 of 6."""
    return (num_layers + 1) // 2


def information(objective: Spec, side: Literal["input", "output"], regime: str = "clean", first: int = 0) -> Reading:
    """Mutual information of the states with the input or the output token, layers 0..L."""
    return (
        Table(representations.MUTUAL_INFORMATION.name, objective)
        .where(side=side, regime=regime)
        .by("layer", first=first)
    )


def identity(objective: Spec) -> Reading:
    """Share of neighbours that are the same token, layers 1..L (the layers of the published figure)."""
    return Table(representations.IDENTITY_NEIGHBOURS.name, objective).by("layer", first=1)


def change(objective: Spec) -> Reading:
    """Distance between consecutive layers, 1-2 to (L−1)-L."""
    return Table(representations.LAYER_DISTANCE.name, objective).by("layer", first=1)


def of_objectives(reading: Callable[[Spec], Reading]) -> dict[str, Reading]:
    return {"translation": reading(TRANSLATION), "causal": reading(CAUSAL), "masked": reading(MASKED)}


def geometry(objective: Spec, measure: str, space: str = "raw") -> Reading:
    """A similarity `measure` of the states of words, layers 0..L."""
    return Table(representations.GEOMETRY.name, objective).where(measure=measure, space=space).by("layer")


def position(objective: Spec) -> Reading:
    """Mean distance between a token's position and those of its nearest occurrences, layers 1..L."""
    return Table(representations.POSITION_NEIGHBOURS.name, objective).by("layer", first=1)


def context(objective: Spec, side: Literal["left", "right"]) -> Reading:
    """Share of the nearest occurrences of a token that also have the same adjacent token, layers 1..L."""
    return Table(representations.CONTEXT_NEIGHBOURS.name, objective).where(side=side).by("layer", first=1)


def tag(objective: Spec, column: str) -> Reading:
    """Share of the nearest occurrences of a token that have the same tag, layers 1..L."""
    return Table(representations.TAG_NEIGHBOURS.name, objective).where(tag=column).by("layer", first=1)


def task_distance(first: Spec, second: Spec) -> Reading:
    """Distance between the models of two objectives with the same seed, layers 1..L."""
    absent = f"no distance between {{state}} {NAMES[first]} and {NAMES[second]} of one seed was measured"
    return Table(representations.MODEL_DISTANCE.name, first, second, absent=absent).by("layer", first=1)


def seed_distance(objective: Spec) -> Reading:
    """Distance between two models of one objective with different seeds, layers 1..L."""
    absent = "no distance between {state} models of two seeds was measured (is there only one seed?)"
    return Table(representations.MODEL_DISTANCE.name, objective, objective, "ordered", absent=absent).by(
        "layer", first=1
    )


LANGUAGE_MODEL_INFORMATION: dict[str, Reading] = {
    "causal input": information(CAUSAL, "input"),
    "causal output": information(CAUSAL, "output"),
    "masked input": information(MASKED, "input", regime="training"),
    "masked output": information(MASKED, "output", regime="training"),
}
"""Mutual information of both language models' states with the input and output tokens, in their training regimes."""

TASK_DISTANCES: dict[str, Reading] = {
    "translation–masked LM": task_distance(TRANSLATION, MASKED),
    "causal LM–translation": task_distance(CAUSAL, TRANSLATION),
    "causal LM–masked LM": task_distance(CAUSAL, MASKED),
}
"""Distances between the spaces of two objectives, layer by layer, keyed by the names of both objectives."""

SEED_DISTANCES: dict[str, Reading] = {
    "seeds of translation": seed_distance(TRANSLATION),
    "seeds of the causal LM": seed_distance(CAUSAL),
    "seeds of the masked LM": seed_distance(MASKED),
}


# A measure by layer and frequency bin as one long curve, and the statistics that claims compute from it.
RANK_BINS = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
"""The published bins, identified by their lowest rank."""
_LEAST_BINS = 5
_NUM_REPLICAS = 1000


def change_by_rank(objective: Spec) -> Reading:
    """Change between consecutive layers, 1-2 to (L−1)-L, by published frequency bin."""
    return _grid(Table(representations.CHANGE_BY_FREQUENCY.name, objective, needs=("layer", "rank_low")), 1)


def influence_by_rank(objective: Spec) -> Reading:
    """Influence on all other tokens in blocks 1..L (numbered from 0 in the table), by published frequency bin."""
    table = Table(representations.INFLUENCE_BY_FREQUENCY.name, objective, needs=("block", "rank_low"))
    return _grid(table.where(pool="others"), 0)


def _grid(table: Table, first: int) -> Reading:
    """Concatenate the bins of all layers, lowest layer first; a bin with too few occurrences is NaN."""
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
    """The curves as (N, L, R') with the R' measured bins, rarest last; two NaN bins if fewer than two were measured."""
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
    """A control with each model's bins in a random order, which is the same for all layers of the model."""
    return Control(
        "permuted frequency bins",
        reads,
        transform=_permute,
        permuted=("bins", lambda curves: min(by_layer(curve).shape[2] for curve in curves.values())),
    )


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


# How far the seed of k-means alone can change a curve of mutual information.
def clustering_control(reads: Mapping[str, Reading]) -> Control:
    """A control with flat curves whose layers differ only by the spread over clustering seeds.

    It needs more than one clustering seed; with a single one, it is reported as not measured.
    """
    return Control(
        "spread of k-means over its seeds",
        {name: curve.changed(number="clustering_spread") for name, curve in reads.items()},
        transform=_noise,
    )


def _noise(spreads: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: spread * stream("findings", "clustering", name).standard_normal((_NUM_REPLICAS, spread.shape[1]))
        for name, spread in spreads.items()
    }
