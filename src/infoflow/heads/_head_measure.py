"""What the streaming measures of heads share: sums per bootstrap block, layer and head."""

# N bootstrap block (64), L layer, H head, X any further axis of the score (for example offsets)

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Measure, Need, Reader
from infoflow.foundation import NUM_BLOCKS, Scale, UserError
from infoflow.models import keys_stack
from infoflow.results import Column, ratio_estimate

from ._roles import NAMED, PUNCTUATION, SPECIAL, Roles
from ._rows import AttentionRows

HEAD_KEYS = (
    Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
    Column(name="kind", dtype="string", unit="", description="self or cross"),
    Column(name="layer", dtype="int64", unit="", description="block, from 0"),
    Column(name="head", dtype="int64", unit="", description="head, from 0"),
)


AVERAGES = ("micro", "document")


class AbstractHeadMeasure(Measure):
    """A mean over queries, per head, with its baseline; subclasses say what is summed.

    The sums are `score` (64, L, H, X…), `count` and `chance` (64, X…), all float64, for each stack and kind; a chance
    that differs between heads is (64, L, H, X…).

    Args:
        exclude_keys: Roles of tokens that are no keys: "special" (all special tokens), "cls", "sep", "bos", "eos",
            "punctuation", or a token of the vocabulary. Padding never is one. What falls on them is not redistributed.
        exclude_queries: Roles of tokens that are no queries.
        average: `"micro"` pools all queries; `"document"` averages each sentence's mean.
    """

    needs: frozenset[Need] = frozenset({"attention"})

    def __init__(
        self,
        exclude_keys: Sequence[str] = (SPECIAL,),
        exclude_queries: Sequence[str] = (SPECIAL,),
        average: str = "micro",
    ) -> None:
        if average not in AVERAGES:
            raise UserError(f'average must be "micro" (over queries) or "document" (over sentences). Got {average}.')
        self.exclude_keys, self.exclude_queries = tuple(exclude_keys), tuple(exclude_queries)
        self.average = average
        self._roles = Roles(ids={})
        self._sums: dict[AttentionKey, dict[str, np.ndarray]] = {}

    def prepare(self, reader: Reader) -> None:
        known = {SPECIAL, PUNCTUATION, *NAMED}
        custom = [role for role in (*self.exclude_keys, *self.exclude_queries) if role not in known]
        self._roles = Roles.of(reader, custom=custom)

    @abstractmethod
    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head *x"]:
        """Sums over the queries of each sentence, in float64."""

    @abstractmethod
    def _count(self, rows: AttentionRows) -> Float[Tensor, "sentence *x"]:
        """Number of queries that each sum is over."""

    @abstractmethod
    def _chance(self, rows: AttentionRows) -> Float[Tensor, "sentence *x"]:
        """The same sums for the control: a head without preferences."""

    @abstractmethod
    def _keys(self) -> list[dict[str, Any]]:
        """Key columns of each entry of X; one empty dictionary where the score has no further axis."""

    def _rows(self, activations: Activations, key: AttentionKey) -> AttentionRows:
        """The queries and keys that count; subclasses may add what their score needs."""
        return AttentionRows.of_activations(
            activations,
            key,
            self._kept(activations, key[0], self.exclude_queries),
            self._kept(activations, keys_stack(*key), self.exclude_keys),
        )

    def _kept(self, activations: Activations, stack: str, excluded: Sequence[str]) -> Bool[Tensor, "sentence token"]:
        stream = activations.streams[stack]
        kept = stream.real
        for role in excluded:
            kept = kept & ~self._roles.where(stream, stack, role)
        return kept

    def update(self, activations: Activations) -> None:
        blocks = activations.blocks.cpu()
        for key, layers in activations.attention.items():
            rows = self._rows(activations, key)
            score = _stacked([self._score(weights.float(), rows).cpu() for weights in layers])
            count, chance = self._count(rows).cpu(), self._chance(rows).cpu()
            if self.average == "document":
                score, chance, count = _per_document(score, chance, count)
            self._add(key, score=_by_block(score, blocks), count=_by_block(count, blocks))
            self._add(key, chance=_by_block(chance, blocks))

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

    def _scale(self, extra: dict[str, Any]) -> Scale:
        """What the score of the row with these keys can be."""
        return "share"

    def _add(self, key: AttentionKey, **sums: np.ndarray) -> None:
        held = self._sums.setdefault(key, {})
        for name, array in sums.items():
            held[name] = held[name] + array if name in held else array.copy()

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        score, count, chance = sums["score"], sums["count"], sums["chance"]
        score = score.reshape(*score.shape[:3], -1)
        _, num_layers, num_heads, num_scores = score.shape
        count = count.reshape(NUM_BLOCKS, num_scores)
        chance = chance.reshape(NUM_BLOCKS, -1, num_scores).sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            baselines = np.broadcast_to(chance / count.sum(0), (num_layers * num_heads, num_scores))
        return [
            {
                "stack": key[0],
                "kind": key[1],
                "layer": layer,
                "head": head,
                **extra,
                **ratio_estimate(
                    score[:, layer, head, x], count[:, x], baselines[layer * num_heads + head, x], self._scale(extra)
                ),
            }
            for layer in range(num_layers)
            for head in range(num_heads)
            if not np.isnan(score[:, layer, head]).any(axis=0).all()  # a head that was pruned away
            for x, extra in enumerate(self._keys())
        ]


def _stacked(layers: list[Tensor]) -> Float[Tensor, "sentence layer head *x"]:
    """The layers' scores together; NaN where a layer of a pruned model has fewer heads than another."""
    most = max(layer.shape[1] for layer in layers)
    stacked = layers[0].new_full((len(layers[0]), len(layers), most, *layers[0].shape[2:]), torch.nan)
    for index, layer in enumerate(layers):
        stacked[:, index, : layer.shape[1]] = layer
    return stacked


def compact(estimate: dict[str, Any]) -> dict[str, Any]:
    """The columns of an estimate with replicates of five digits, for tables of thousands of rows."""
    return {**estimate, "replicates": np.round(estimate["replicates"], 5).tolist()}


def _per_document(score: Tensor, chance: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each sentence's means, and 1 for each sentence that has one."""
    size = count.clamp(min=1)
    over_heads = size.reshape(len(size), 1, 1, *size.shape[1:])
    chance_size = over_heads if chance.ndim == score.ndim else size
    return score / over_heads, chance / chance_size, (count > 0).double()


def _by_block(values: Float[Tensor, "sentence *rest"], blocks: Tensor) -> np.ndarray:
    """Sum the sentences of each bootstrap block."""
    sums = torch.zeros(NUM_BLOCKS, *values.shape[1:], dtype=torch.float64)
    return sums.index_add_(0, blocks, values).numpy()
