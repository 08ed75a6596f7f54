"""What the streaming measures of heads share: sums per bootstrap block, layer and head."""

# N bootstrap block (64), L layer, H head, X any further axis of the score (for example offsets)

from abc import abstractmethod
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Measure, Need
from infoflow.foundation import NUM_BLOCKS
from infoflow.results import Column, ratio_estimate

from ._rows import Rows

HEAD_KEYS = (
    Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
    Column(name="kind", dtype="string", unit="", description="self or cross"),
    Column(name="layer", dtype="int64", unit="", description="block, from 0"),
    Column(name="head", dtype="int64", unit="", description="head, from 0"),
)


class AbstractHeadMeasure(Measure):
    """A mean over queries, per head, with its baseline; subclasses say what is summed.

    The sums are `score` (64, L, H, X…), `count` and `chance` (64, X…), all float64, for each stack and kind.
    """

    needs: frozenset[Need] = frozenset({"attention"})

    def __init__(self) -> None:
        self._sums: dict[AttentionKey, dict[str, np.ndarray]] = {}

    @abstractmethod
    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: Rows
    ) -> Float[Tensor, "sentence head *x"]:
        """Sums over the queries of each sentence, in float64."""

    @abstractmethod
    def _count(self, rows: Rows) -> Float[Tensor, "sentence *x"]:
        """Number of queries that each sum is over."""

    @abstractmethod
    def _chance(self, rows: Rows) -> Float[Tensor, "sentence *x"]:
        """The same sums for the control: a head without preferences."""

    @abstractmethod
    def _keys(self) -> list[dict[str, Any]]:
        """Key columns of each entry of X; one empty dictionary where the score has no further axis."""

    def update(self, activations: Activations) -> None:
        blocks = activations.blocks.cpu()
        for key, layers in activations.attention.items():
            rows = Rows.of_activations(activations, key)
            score = torch.stack([self._score(weights.float(), rows).cpu() for weights in layers], dim=1)
            self._add(key, score=_by_block(score, blocks), count=_by_block(self._count(rows).cpu(), blocks))
            self._add(key, chance=_by_block(self._chance(rows).cpu(), blocks))

    def merge(self, other: "AbstractHeadMeasure") -> None:
        for key, sums in other._sums.items():
            self._add(key, **sums)

    def state_dict(self) -> dict[str, np.ndarray]:
        return {".".join((*key, name)): array for key, sums in self._sums.items() for name, array in sums.items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = {}
        for name, array in state.items():
            stack, kind, part = name.split(".")
            self._add((stack, kind), **{part: array})

    def result(self) -> pd.DataFrame:
        rows = [row for key, sums in self._sums.items() for row in self._head_rows(key, sums)]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _add(self, key: AttentionKey, **sums: np.ndarray) -> None:
        held = self._sums.setdefault(key, {})
        for name, array in sums.items():
            held[name] = held[name] + array if name in held else array.copy()

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        score, count, chance = sums["score"], sums["count"], sums["chance"]
        score = score.reshape(*score.shape[:3], -1)
        count, chance = count.reshape(NUM_BLOCKS, -1), chance.reshape(NUM_BLOCKS, -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            baselines = chance.sum(0) / count.sum(0)
        _, num_layers, num_heads, _ = score.shape
        return [
            {
                "stack": key[0],
                "kind": key[1],
                "layer": layer,
                "head": head,
                **extra,
                **ratio_estimate(score[:, layer, head, x], count[:, x], baselines[x]),
            }
            for layer in range(num_layers)
            for head in range(num_heads)
            for x, extra in enumerate(self._keys())
        ]


def _by_block(values: Float[Tensor, "sentence *rest"], blocks: Tensor) -> np.ndarray:
    """Sum the sentences of each bootstrap block."""
    sums = torch.zeros(NUM_BLOCKS, *values.shape[1:], dtype=torch.float64)
    return sums.index_add_(0, blocks, values).numpy()
