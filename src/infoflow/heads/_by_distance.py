"""How a head's attention falls with the distance between query and key, and with the distance from the first token."""

# B sentence, H head, Q query, K key, D class of distances

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey
from infoflow.results import Column, TableSchema, estimate_columns

from ._attention_rows import AttentionRows, Pairs, Weights
from ._head_measure import HEAD_KEYS, AbstractHeadMeasure

_TO = ("every token", "first token")
_NUM = 18  # classes 0, 1, 2–3, 4–7, …; the last holds all distances from 65,536 on

TO = Column(
    "to", "string", "", "every token: attention on all keys at this distance; first token: attention on the first key"
)
NEAREST = Column("nearest", "int64", "tokens", "smallest distance of the class")
FARTHEST = Column("farthest", "int64", "tokens", "largest distance of the class; −1: any")
HEAD_BY_DISTANCE = TableSchema(
    name="head_by_distance",
    description="Share of a query's attention on keys by distance (in classes that double in width), and its share on "
    "the first token by the query's distance from that token (attention sinks). Queries without a key in the class do "
    "not count.",
    columns=(
        *HEAD_KEYS,
        TO,
        NEAREST,
        FARTHEST,
        *estimate_columns("share of attention", "mean over queries", "the value for uniform attention"),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceRows(AttentionRows):
    """Attention rows with the class of the distance between each query and key."""

    distance: Int[Tensor, "sentence query key"]
    first: Bool[Tensor, "sentence key"]


class AttentionByDistance(AbstractHeadMeasure):
    r"""Attention of every head by distance: how far back it looks, and how much the first token absorbs.

    $$ \frac{1}{|Q_c|} \sum_{i \in Q_c} \sum_{j : |i - j| \in c} a_{ij}, \qquad
       \frac{1}{|Q'_c|} \sum_{i \in Q'_c} a_{i1}, \quad Q'_c = \{i : i - 1 \in c\} $$

    The classes c of distances are 0, 1, 2–3, 4–7 and so on; $Q_c$ are the queries that may attend to a key in c.
    Special tokens count as queries and keys unless excluded. Distances count tokens without padding.

    Args:
        exclusions: `exclude_keys`, `exclude_queries` and `average`, as in `Confidence`; by default none.

    Source: [@xiao2024] for sinks; the profile over distances is ours.
    """

    table: ClassVar[TableSchema] = HEAD_BY_DISTANCE

    def __init__(self, **exclusions: Any) -> None:
        super().__init__(**{"exclude_keys": (), "exclude_queries": (), **exclusions})

    def rows_of(self, valid: Bool[Tensor, "sentence token"]) -> DistanceRows:
        return _with_distance(AttentionRows.of_tokens(valid), valid & (valid.cumsum(1) == 1))

    def _rows(self, activations: Activations, key: AttentionKey, visible: Pairs) -> DistanceRows:
        return _with_distance(super()._rows(activations, key, visible), activations.keys_stream(key).position == 0)

    def sums(self, weights: Weights, rows: DistanceRows) -> Float[Tensor, "sentence head class"]:
        kept = rows.kept(weights)
        at = rows.distance.unsqueeze(1).expand(kept.shape)
        every = kept.new_zeros(*kept.shape[:3], _NUM).scatter_add_(3, at, kept).double().sum(2)
        first, distance = _on_first(kept, rows)
        by_class = first.new_zeros(*first.shape[:2], _NUM).scatter_add_(2, distance.expand(first.shape), first)
        return torch.cat([every, by_class], dim=2)

    def count(self, rows: DistanceRows) -> Float[Tensor, "sentence class"]:
        present = torch.zeros(*rows.distance.shape[:2], _NUM, dtype=torch.float64, device=rows.distance.device)
        present.scatter_add_(2, rows.distance, rows.admissible.double())
        able, distance = _on_first(rows.admissible.double().unsqueeze(1), rows)
        by_class = present.new_zeros(len(present), _NUM).scatter_add_(1, distance.squeeze(1), able.squeeze(1))
        return torch.cat([(present > 0).double().sum(1), by_class], dim=1)

    def keys(self) -> list[dict[str, Any]]:
        ends = [(0, 0), *((2**k, 2 ** (k + 1) - 1) for k in range(_NUM - 1))]
        ends[-1] = (ends[-1][0], -1)
        return [{TO: to, NEAREST: nearest, FARTHEST: farthest} for to in _TO for nearest, farthest in ends]

    def _head_rows(self, key: AttentionKey, sums: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for row in super()._head_rows(key, sums) if row["count"] > 0]


def _with_distance(rows: AttentionRows, first: Bool[Tensor, "sentence key"]) -> DistanceRows:
    classes = torch.frexp(rows.offset.abs().double()).exponent.clamp(max=_NUM - 1)
    return rows.extended(DistanceRows, distance=classes.long(), first=first)


def _on_first(
    kept: Weights, rows: DistanceRows
) -> tuple[Float[Tensor, "sentence head query"], Int[Tensor, "sentence 1 query"]]:
    """Each query's attention on the first token, and the class of the distance between the two."""
    first = rows.first.to(torch.int64).argmax(1)[:, None, None]
    distance = rows.distance.gather(2, first.expand(-1, rows.distance.shape[1], 1)).squeeze(2)
    at = first[:, None].expand(*kept.shape[:3], 1)
    there = kept.gather(3, at).squeeze(3).double() * rows.first.any(1)[:, None, None]
    return there, distance.unsqueeze(1)
