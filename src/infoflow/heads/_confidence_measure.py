"""Head confidence over a corpus."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from infoflow.results import TableSchema, estimate_columns

from ._confidence import confidence_sums
from ._head_measure import HEAD_KEYS, AbstractHeadMeasure
from ._rows import AttentionRows

_SCHEMA = TableSchema(
    name="head_confidence",
    version=1,
    description="Largest attention weight of a query over real tokens, averaged over queries.",
    columns=(
        *HEAD_KEYS,
        *estimate_columns("probability", "mean of the largest weight", "uniform attention over the same keys"),
    ),
)


class Confidence(AbstractHeadMeasure):
    """`confidence` of every head of every stack and kind; special tokens count neither as query nor as key
    unless `exclude_keys` and `exclude_queries` say so.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head"]:
        return confidence_sums(weights, rows)

    def _count(self, rows: AttentionRows) -> Float[Tensor, " sentence"]:
        return rows.queries.sum(1).double()

    def _chance(self, rows: AttentionRows) -> Float[Tensor, " sentence"]:
        return (rows.queries / rows.num_keys.clamp(min=1).double()).sum(1)

    def _keys(self) -> list[dict[str, Any]]:
        return [{}]
