"""A measure by layer and frequency bin, as one long curve, and what claims ask of it."""

# N rows (estimate, seeds, draws), L layers, R bins of frequency rank

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import stream
from infoflow.results import Spec

from ._finding import Control, Curves
from ._model_group import Absent
from ._panel import Panel
from ._reading import Number, Objective, Reading, Tables, check_layers, chosen, replicates_of, require_rows
from ._shapes import spearman

RANK_BINS = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
"""The published bins, by their lowest rank."""
_LEAST_BINS = 5
_NUM_REPLICAS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RankGrid:
    """A measure of one objective's models by layer and published frequency bin.

    The curve holds the bins of one layer after those of the layer below, NaN where a bin had too few occurrences.
    """

    table: str
    objective: Objective
    layer: str  # the column that numbers layers: "layer", or "block" from 0
    first_layer: int
    variant: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        columns = ["seed", "trained", self.layer, "rank_low", self.number, *self.where]
        objective = Spec(self.objective, self.variant)
        frame = tables.rows(self.table, objective, columns, trained=self.trained)
        frame = chosen(frame, self.where)
        require_rows(frame, tables.table(self.table), self.table, objective.label, self.trained, self.where)
        frame = frame[(frame[self.layer] >= self.first_layer) & frame["rank_low"].isin(RANK_BINS)]
        return self._panel(frame)

    def _panel(self, frame: pd.DataFrame) -> Panel:
        seeds = sorted({int(seed) for seed in frame["seed"]})
        layers = sorted({int(layer) for layer in frame[self.layer]})
        shape = (len(seeds), len(layers), len(RANK_BINS))
        num_bins = len(set(frame["rank_low"]))
        if num_bins < _LEAST_BINS:
            names = f"{num_bins} of the published frequency bins"
            raise Absent(f"{self.table} has {names}, needed {_LEAST_BINS}: the vocabulary or the corpus is too small")
        check_layers({tuple(layers)}, self.first_layer, self.table)
        if bool(frame.duplicated(["seed", self.layer, "rank_low"]).to_numpy().any()):
            raise Absent(f"{self.table} holds a bin of a layer twice")
        where = tuple(
            np.array([order.index(int(key)) for key in frame[column]])
            for column, order in (("seed", seeds), (self.layer, layers), ("rank_low", list(RANK_BINS)))
        )
        values_ULR = np.full(shape, np.nan)
        values_ULR[where] = frame[self.number].to_numpy(dtype=float)
        replicates = replicates_of(frame) if self.number == "value" else np.empty((len(frame), 0))
        replicates_ULRr = np.full((*shape, replicates.shape[1]), np.nan)
        replicates_ULRr[where] = replicates
        return Panel(
            units=tuple((seed,) for seed in seeds),
            layers=tuple(layers),
            values_UK=values_ULR.reshape(len(seeds), shape[1] * shape[2]),
            replicates_URK=replicates_ULRr.reshape(len(seeds), shape[1] * shape[2], replicates.shape[1]).transpose(
                0, 2, 1
            ),
        )


def change_by_rank(objective: Objective) -> RankGrid:
    """Change between consecutive layers 1-2 .. (L−1)-L."""
    return RankGrid(table="change_by_frequency", objective=objective, layer="layer", first_layer=1)


def influence_by_rank(objective: Objective, variant: str = "") -> RankGrid:
    """Influence on all other tokens in blocks 1..L (numbered from 0 in the table)."""
    where = {"pool": "others"}
    return RankGrid(
        table="influence_by_frequency", objective=objective, variant=variant, layer="block", first_layer=0, where=where
    )


def by_layer(curves: np.ndarray) -> np.ndarray:
    """The curves as (N, L, R') with the R' bins that were measured, rarest last; two bins of NaN where fewer were."""
    grid_NLR = curves.reshape(len(curves), -1, len(RANK_BINS))
    measured = ~np.isnan(grid_NLR[0]).any(axis=0)
    return grid_NLR[:, :, measured] if measured.sum() > 1 else np.full_like(grid_NLR[:, :, :2], np.nan)


def rank_correlation(curves: np.ndarray) -> np.ndarray:
    """Rank correlation of the measure with frequency rank at each layer, (N, L); 1 where it rises with rarity."""
    grid_NLR = by_layer(curves)
    ranks = np.arange(grid_NLR.shape[2])[None]
    return np.concatenate([spearman(grid_NLR[:, layer], ranks) for layer in range(grid_NLR.shape[1])], axis=1)


def frequent_over_rarest(curves: np.ndarray) -> np.ndarray:
    """The most frequent bin's value over the rarest one's at each layer, (N, L)."""
    grid_NLR = by_layer(curves)
    return grid_NLR[:, :, 0] / grid_NLR[:, :, -1]


def rarest_over_next(curves: np.ndarray) -> np.ndarray:
    """The rarest bin's value over that of the bin before it at each layer, (N, L)."""
    grid_NLR = by_layer(curves)
    return grid_NLR[:, :, -1] / grid_NLR[:, :, -2]


def permuted_bins(reads: Mapping[str, Reading]) -> Control:
    """The same numbers with each model's bins in random order, the same for all its layers."""
    return Control(name="permuted frequency bins", reads=reads, transform=_permute)


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
