"""Positional heads over a corpus."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS, AbstractHeadMeasure
from ._offsets import check_offsets, offset_chances, offset_counts, offset_hits
from ._rows import AttentionRows

_SCHEMA = TableSchema(
    name="head_positional",
    version=1,
    description="Share of queries whose largest weight lies at a fixed offset, among real tokens. In causal "
    "self-attention later tokens are no keys, so positive offsets have no queries and no value.",
    columns=(
        *HEAD_KEYS,
        Column(name="offset", dtype="int64", unit="tokens", description="key less query; −1 = previous token"),
        *estimate_columns("share", "share of queries that look there", "a random admissible key"),
    ),
)


class PositionalScores(AbstractHeadMeasure):
    """`offset_scores` of every head of every stack and kind; special tokens count neither as query nor as key.

    Offsets compare positions among real tokens, the first being 0: padding on either side changes nothing, and in
    cross-attention offset 0 is the source token at the query's own place.

    Args:
        offsets: Key less query.
        denominator: `"valid"`: queries that have an admissible key there; `"all"`: all queries.
        exclusions: `exclude_keys`, `exclude_queries` and `average`, as `Confidence` has them.

    Source: [@voita2019heads]: positional from a share of 0.9.
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(self, offsets: Sequence[int] = (-1, 1), denominator: str = "valid", **exclusions: Any) -> None:
        super().__init__(**exclusions)
        check_offsets(offsets, denominator)
        self.offsets = tuple(offsets)
        self.denominator = denominator

    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head offset"]:
        return offset_hits(weights, rows, self.offsets)

    def _count(self, rows: AttentionRows) -> Float[Tensor, "sentence offset"]:
        return offset_counts(rows, self.offsets, self.denominator)

    def _chance(self, rows: AttentionRows) -> Float[Tensor, "sentence offset"]:
        return offset_chances(rows, self.offsets)

    def _keys(self) -> list[dict[str, Any]]:
        return [{"offset": offset} for offset in self.offsets]
