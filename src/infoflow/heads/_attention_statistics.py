"""Statistics of a head's attention, as means over queries: confidence, entropy, positions.

Each is one class: streamed over a corpus as a measure, or computed on arrays by `of(attention, valid)`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import Scale, UserError
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS, AbstractHeadMeasure
from ._rows import Array, Attention, AttentionRows, largest, maxima, sum_on, sum_queries

OFFSET = Column("offset", "int64", "tokens", "key minus query; −1 = previous token")
HEAD_CONFIDENCE = TableSchema(
    name="head_confidence",
    version=2,
    description="Largest attention weight of a query over real tokens, averaged over queries.",
    light=True,
    columns=(
        *HEAD_KEYS,
        *estimate_columns("probability", "mean of the largest weight", "the same of uniform attention"),
    ),
)
HEAD_ENTROPY = TableSchema(
    name="head_entropy",
    version=2,
    description="Entropy of a query's attention over real tokens, averaged over queries; what falls on special "
    "tokens is left out, not renormalised. It grows with the length of sentences, as the baseline "
    "does: compare corpora by the share of the baseline.",
    columns=(*HEAD_KEYS, *estimate_columns("nats", "mean entropy", "the same of uniform attention")),
)
HEAD_POSITIONAL = TableSchema(
    name="head_positional",
    version=2,
    description="Share of queries whose largest weight lies at a fixed offset, among real tokens; m keys with the same "
    "largest weight count 1/m each. In causal self-attention later tokens are no keys, so positive offsets have no "
    "queries and no value.",
    light=True,
    columns=(
        *HEAD_KEYS,
        OFFSET,
        *estimate_columns("share", "share of queries that look there", "the same of uniform attention"),
    ),
)


class Confidence(AbstractHeadMeasure):
    """`confidence` of every head of every stack and kind; special tokens count neither as query nor as key
    unless `exclude_keys` and `exclude_queries` say so.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = HEAD_CONFIDENCE

    def sums(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head"]:
        return sum_queries(largest(weights, rows), rows)


class Entropy(AbstractHeadMeasure):
    """`attention_entropy` of every head of every stack and kind; special tokens count neither as query nor as key
    unless `exclude_keys` and `exclude_queries` say so.

    Source: [@clark2019].
    """

    table: ClassVar[TableSchema] = HEAD_ENTROPY

    def sums(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head"]:
        # entr(0) is 0; -a * log(a) would give NaN for masked keys.
        kept = weights.masked_fill(~rows.admissible.unsqueeze(1), 0)
        return sum_queries(torch.special.entr(kept).sum(3, dtype=torch.float64), rows)

    def scale(self, extra: dict[str, Any]) -> Scale:
        return "positive"


class PositionalScores(AbstractHeadMeasure):
    """`offset_scores` of every head of every stack and kind; special tokens count neither as query nor as key.

    Offsets count real tokens from 0: padding on either side changes nothing, and in cross-attention offset 0 is the
    source token at the query's own position.

    Args:
        offsets: Key minus query.
        denominator: `"valid"`: queries with an admissible key there; `"all"`: all queries.
        exclusions: `exclude_keys`, `exclude_queries` and `average`, as in `Confidence`.

    Source: [@voita2019heads]: positional from a share of 0.9.
    """

    table: ClassVar[TableSchema] = HEAD_POSITIONAL

    def __init__(self, offsets: Sequence[int] = (-1, 1), denominator: str = "valid", **exclusions: Any) -> None:
        super().__init__(**exclusions)
        if denominator not in ("valid", "all"):
            raise UserError(f'denominator must be "valid" or "all". Got {denominator}.')
        if len(offsets) == 0:
            raise UserError("offsets must name at least one offset, for example (-1, 1). Got none.")
        self.offsets, self.denominator = tuple(offsets), denominator

    def sums(
        self, weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
    ) -> Float[Tensor, "sentence head offset"]:
        return sum_on(maxima(weights, rows.admissible.unsqueeze(1)), [rows.offset == o for o in self.offsets])

    def count(self, rows: AttentionRows) -> Float[Tensor, "sentence offset"]:
        return torch.stack([self._able(rows, offset).sum(1) for offset in self.offsets], dim=1).double()

    def _able(self, rows: AttentionRows, offset: int) -> Bool[Tensor, "sentence query"]:
        """Queries that could have attended there."""
        return rows.queries if self.denominator == "all" else (rows.admissible & (rows.offset == offset)).any(2)

    def keys(self) -> list[dict[str, Any]]:
        return [{OFFSET: offset} for offset in self.offsets]


def confidence(attention: Attention, valid: Array) -> Float[Tensor, "layer head"]:
    r"""Largest attention weight of a query, averaged over all queries.

    $$ \mathrm{conf}(h) = \frac{1}{|Q|} \sum_{i \in Q} \max_{j \in K} a^h_{ij} $$

    Q and K are the valid tokens, pooled over sentences; other columns are dropped before the maximum, without
    renormalising the remaining weights.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.

    Returns:
        Mean maximum weight in [0, 1]; NaN where no token is valid.

    Raises:
        UserError: A shape is wrong.

    Source: [@voita2019heads].

    >>> confidence(torch.full((1, 1, 1, 4, 4), 0.25), torch.ones(1, 4, dtype=torch.bool))
    tensor([[0.2500]])
    """
    return Confidence().of(attention, valid)


def attention_entropy(attention: Attention, valid: Array) -> Float[Tensor, "layer head"]:
    r"""Entropy of a query's attention in nats, averaged over all queries.

    $$ E(h) = -\frac{1}{|Q|} \sum_{i \in Q} \sum_{j \in K} a^h_{ij} \ln a^h_{ij} $$

    Q and K are the valid tokens, pooled over sentences. Without smoothing, and without renormalisation after exclusion.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.

    Returns:
        Nats, in [0, ln |K|]; NaN where no token is valid.

    Raises:
        UserError: A shape is wrong.

    Source: [@clark2019], who smooth the weights and average documents instead.

    >>> attention_entropy(torch.full((1, 1, 1, 4, 4), 0.25), torch.ones(1, 4, dtype=torch.bool))
    tensor([[1.3863]])
    """
    return Entropy().of(attention, valid)


def offset_scores(
    attention: Attention, valid: Array, offsets: Sequence[int] = (-1, 1), denominator: str = "valid"
) -> Float[Tensor, "layer head offset"]:
    r"""Share of queries whose largest weight is at a given offset.

    $$ s_o(h) = \frac{1}{|Q_o|} \sum_{i \in Q_o} \big[ \arg\max_{j \in K} a^h_{ij} = i + o \big] $$

    K are the valid tokens. With `denominator="valid"`, $Q_o$ are the valid queries i for which i + o is a valid key;
    with `"all"` all valid queries, which keeps even a perfect previous-token head below 1 (7/8 with 8 tokens). Each of
    m tied keys counts 1/m. A head is positional if the share is at least 0.9 [@voita2019heads].

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        offsets: Key index less query index; −1 is the previous token.
        denominator: `"valid"` or `"all"`.

    Returns:
        Shares in [0, 1]; NaN where no query counts.

    Raises:
        UserError: A shape is wrong, or the denominator is unknown.

    Source: [@voita2019heads].

    >>> previous = torch.eye(4).roll(-1, 1)[None, None, None]
    >>> offset_scores(previous, torch.ones(1, 4, dtype=torch.bool))
    tensor([[[1., 0.]]])
    """
    return PositionalScores(offsets, denominator).of(attention, valid)
