"""Heads that point to a sentence's rarest tokens, over a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Reader
from infoflow.foundation import UserError, as_written, stream
from infoflow.models import keys_stack
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS, AbstractHeadMeasure
from ._rare_token import AVERAGES
from ._rows import AttentionRows, largest

_SCHEMA = TableSchema(
    name="head_rare_token",
    version=1,
    description="Share of queries whose largest weight lies on one of the rarest tokens that they may attend to, in "
    "sentences that hold a rare token.",
    columns=(
        *HEAD_KEYS,
        Column(name="rarest", dtype="int64", unit="types", description="number of rarest types that count as a hit"),
        *estimate_columns(
            "share", "share of queries", "the same head and sentences with the frequency ranks of all types shuffled"
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RareRows(AttentionRows):
    """Rows of sentences with a rare token, and the keys that are rarest for each query."""

    targets: tuple[Bool[Tensor, "sentence query key"], ...]
    """For each number of rarest types: by frequency, then by shuffled ranks."""


class RareTokenScores(AbstractHeadMeasure):
    """`rare_token_score` of every head of every stack and kind; special tokens count neither as query nor as key.

    Ranks count the training corpus where the caller knows it (`measure(..., ranks_from=...)`), else the analysed one;
    a token that never occurs there is the rarest. Only sentences count whose rarest token lies outside the `top` most
    frequent ones. A query's targets are the rarest among the keys that it may attend to: in causal attention among
    those before it, in cross-attention among the source's.

    Args:
        rarest: Numbers of rarest types that count as a hit; any position of such a type does.
        top: Sentences of nothing but the `top` most frequent tokens are left out.
        average: `"per_query"` pools queries, `"per_sentence"` averages sentences (the paper does not say which).
        seed: Of the shuffled ranks.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self, rarest: Sequence[int] = (1, 2), top: int = 500, average: str = "per_query", seed: int = 0
    ) -> None:
        if average not in AVERAGES or not rarest or min(rarest) < 1 or top < 0:
            raise UserError(
                'rarest must be numbers from 1, top at least 0 and average "per_query" or "per_sentence". '
                f"Got {as_written(list(rarest))}, {top} and {as_written(average)}."
            )
        super().__init__(average="micro" if average == "per_query" else "document")
        self.rarest, self.top, self.seed = tuple(rarest), top, seed
        self._ranks: dict[str, tuple[Tensor, Tensor]] = {}

    def prepare(self, reader: Reader) -> None:
        super().prepare(reader)
        for stack, ranks in reader.ranks.items():
            known = np.where(ranks > 0, ranks, len(ranks) + 1)
            shuffled = stream("shuffled-ranks", self.seed).permutation(len(ranks)) + 1
            self._ranks[stack] = torch.from_numpy(known), torch.from_numpy(shuffled)

    def _rows(self, activations: Activations, key: AttentionKey) -> RareRows:
        rows = super()._rows(activations, key)
        source = keys_stack(*key)
        keys = activations.streams[source]
        ranks, shuffled = (table.to(keys.input_ids.device)[keys.input_ids] for table in self._ranks[source])
        counted = ranks.masked_fill(~keys.valid, 0).amax(1) > self.top
        admissible = rows.admissible & counted[:, None, None]
        return RareRows(
            admissible=admissible,
            offset=rows.offset,
            targets=tuple(
                rarest_keys(table, admissible, number) for number in self.rarest for table in (ranks, shuffled)
            ),
        )

    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: RareRows
    ) -> Float[Tensor, "sentence head target"]:
        chosen = largest(weights, rows)[1].unsqueeze(3)
        shape = weights.shape
        counted = rows.queries.unsqueeze(1)
        hits = [target.unsqueeze(1).expand(shape).gather(3, chosen).squeeze(3) & counted for target in rows.targets]
        return torch.stack([hit.sum(2) for hit in hits], dim=2).double()

    def _count(self, rows: RareRows) -> Float[Tensor, "sentence target"]:
        return rows.queries.sum(1, keepdim=True).expand(-1, len(rows.targets)).double()

    def _chance(self, rows: RareRows) -> Float[Tensor, "sentence target"]:
        """Not what the table reports: the control lies among the scores, since it differs between heads."""
        chances = [(target.sum(2) / rows.num_keys.clamp(min=1)).sum(1) for target in rows.targets]
        return torch.stack(chances, dim=1).double()

    def _keys(self) -> list[dict[str, Any]]:
        return [{"rarest": number} for number in self.rarest]

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        score, count = sums["score"], sums["count"]
        shown = {"score": score[..., ::2], "count": count[..., ::2], "chance": score[..., 1::2]}
        return super()._head_rows(key, shown)


def rarest_keys(
    ranks: Int[Tensor, "sentence key"], admissible: Bool[Tensor, "sentence query key"], number: int
) -> Bool[Tensor, "sentence query key"]:
    """Keys whose rank is among the `number` largest different ones that the query may attend to."""
    left = ranks.unsqueeze(1).expand(admissible.shape).masked_fill(~admissible, -1)
    found = torch.zeros_like(admissible)
    for _ in range(number):
        highest = left.amax(2, keepdim=True)
        now = (left == highest) & (highest > 0)
        found, left = found | now, left.masked_fill(now, -1)
    return found
