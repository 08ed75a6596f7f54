"""Head entropy over a corpus."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import Scale
from infoflow.results import TableSchema, estimate_columns

from ._entropy import entropy_sums
from ._head_measure import HEAD_KEYS, AbstractHeadMeasure
from ._rows import AttentionRows

_SCHEMA = TableSchema(
    name="head_entropy",
    version=1,
    description="Entropy of a query's attention over real tokens, averaged over queries; what falls on special "
    "tokens is left out, not renormalised. It grows with the length of sentences, as the baseline "
    "does: compare corpora by the share of the baseline.",
    columns=(*HEAD_KEYS, *estimate_columns("nats", "mean entropy", "uniform attention over the same keys")),
)


class Entropy(AbstractHeadMeasure):
    """`attention_entropy` of every head of every stack and kind; special tokens count neither as query nor as key
    unless `exclude_keys` and `exclude_queries` say so.

    Source: [@clark2019].
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head"]:
        return entropy_sums(weights, rows)

    def _count(self, rows: AttentionRows) -> Float[Tensor, " sentence"]:
        return rows.queries.sum(1).double()

    def _chance(self, rows: AttentionRows) -> Float[Tensor, " sentence"]:
        return rows.num_keys.clamp(min=1).double().log().sum(1)

    def _scale(self, extra: dict[str, Any]) -> Scale:
        return "positive"

    def _keys(self) -> list[dict[str, Any]]:
        return [{}]
