"""Statistics of a head's attention, as means over queries: confidence, entropy, positions, and the rarest tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Reader
from infoflow.foundation import Scale, UserError, as_tensor, as_written, stream
from infoflow.models import keys_stack
from infoflow.results import Column, TableSchema, estimate_columns

from ._attention_rows import Array, Attention, AttentionRows, Pairs, Weights, sum_on, sum_queries
from ._head_measure import HEAD_KEYS, AbstractHeadMeasure

# Each statistic is one class: streamed over a corpus as a measure, or computed on arrays by `of(attention, valid)`.

OFFSET = Column("offset", "int64", "tokens", "key position minus query position; −1 = previous token")
HEAD_CONFIDENCE = TableSchema(
    name="head_confidence",
    version=2,
    description="Largest attention weight of a query over real tokens, averaged over queries.",
    light=True,
    columns=(
        *HEAD_KEYS,
        *estimate_columns("probability", "mean of the largest weight", "the value for uniform attention"),
    ),
)
HEAD_ENTROPY = TableSchema(
    name="head_entropy",
    version=2,
    description="Entropy of a query's attention over real tokens, averaged over queries; attention on special "
    "tokens is left out, not redistributed. The entropy grows with sentence length, and so does the baseline, "
    "so compare corpora by the entropy as a share of its baseline.",
    columns=(*HEAD_KEYS, *estimate_columns("nats", "mean entropy", "the value for uniform attention")),
)
HEAD_POSITIONAL = TableSchema(
    name="head_positional",
    version=2,
    description="Share of queries whose largest weight lies at a fixed offset, among real tokens; m keys with the same "
    "largest weight count 1/m each. In causal self-attention later tokens are not keys, so positive offsets have no "
    "queries and no value.",
    light=True,
    columns=(
        *HEAD_KEYS,
        OFFSET,
        *estimate_columns("share", "share of queries with this offset", "the value for uniform attention"),
    ),
)


class Confidence(AbstractHeadMeasure):
    """Mean of the largest attention weight (`confidence`) of every head, by stack and kind of attention.

    By default special tokens count neither as queries nor as keys; see `exclude_keys` and `exclude_queries`.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = HEAD_CONFIDENCE

    def sums(self, weights: Weights, rows: AttentionRows) -> Float[Tensor, "sentence head"]:
        return sum_queries(rows.largest(weights), rows)


class Entropy(AbstractHeadMeasure):
    """Mean entropy of the attention (`attention_entropy`) of every head, by stack and kind of attention.

    By default special tokens count neither as queries nor as keys; see `exclude_keys` and `exclude_queries`.

    Source: [@clark2019].
    """

    table: ClassVar[TableSchema] = HEAD_ENTROPY

    def sums(self, weights: Weights, rows: AttentionRows) -> Float[Tensor, "sentence head"]:
        # entr(0) is 0; -a * log(a) would give NaN for masked keys.
        return sum_queries(torch.special.entr(rows.kept(weights)).sum(3, dtype=torch.float64), rows)

    def scale(self, extra: dict[str, Any]) -> Scale:
        return "positive"


class PositionalScores(AbstractHeadMeasure):
    """Share of queries whose largest weight is at an offset (`offset_scores`), for every head, by stack and kind.

    Special tokens count neither as queries nor as keys. Positions count tokens without padding, from 0. So padding on
    either side does not matter, and in cross-attention offset 0 is the source token at the query's own position.

    Args:
        offsets: Key position minus query position.
        denominator: `"valid"`: queries that have a valid key at this offset; `"all"`: all queries.
        exclusions: `exclude_keys`, `exclude_queries` and `average`, as in `Confidence`.

    Source: [@voita2019heads], who call a head positional if a share is at least 0.9.
    """

    table: ClassVar[TableSchema] = HEAD_POSITIONAL

    def __init__(self, offsets: Sequence[int] = (-1, 1), denominator: str = "valid", **exclusions: Any) -> None:
        super().__init__(**exclusions)
        if denominator not in ("valid", "all"):
            raise UserError(f'denominator must be "valid" or "all". Got {denominator}.')
        if len(offsets) == 0:
            raise UserError("offsets must name at least one offset, for example (-1, 1). Got none.")
        self.offsets, self.denominator = tuple(offsets), denominator

    def sums(self, weights: Weights, rows: AttentionRows) -> Float[Tensor, "sentence head offset"]:
        return sum_on(rows.best(weights), [rows.offset == offset for offset in self.offsets])

    def count(self, rows: AttentionRows) -> Float[Tensor, "sentence offset"]:
        if self.denominator == "all":
            counted = [rows.queries] * len(self.offsets)
        else:
            counted = [(rows.admissible & (rows.offset == offset)).any(2) for offset in self.offsets]
        return torch.stack([queries.sum(1) for queries in counted], dim=1).double()

    def keys(self) -> list[dict[str, Any]]:
        return [{OFFSET: offset} for offset in self.offsets]


def confidence(attention: Attention, valid: Array) -> Float[Tensor, "layer head"]:
    r"""Largest attention weight of a query, averaged over all queries.

    $$ \mathrm{conf}(h) = \frac{1}{|Q|} \sum_{i \in Q} \max_{j \in K} a^h_{ij} $$

    Q and K are the valid tokens, pooled over sentences. The maximum is over valid keys only; their weights are not
    renormalised.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.

    Returns:
        Mean maximum weight in [0, 1]; NaN if no token is valid.

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

    Q and K are the valid tokens, pooled over sentences. Weights are neither smoothed nor renormalised after exclusion.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.

    Returns:
        Nats, in [0, ln |K|]; NaN if no token is valid.

    Raises:
        UserError: A shape is wrong.

    Source: [@clark2019], who instead smooth the weights and average over documents.

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
        offsets: Key position minus query position; −1 is the previous token.
        denominator: `"valid"` or `"all"`.

    Returns:
        Shares in [0, 1]; NaN if no query counts.

    Raises:
        UserError: A shape is wrong, or the denominator is unknown.

    Source: [@voita2019heads].

    >>> previous = torch.eye(4).roll(-1, 1)[None, None, None]
    >>> offset_scores(previous, torch.ones(1, 4, dtype=torch.bool))
    tensor([[[1., 0.]]])
    """
    return PositionalScores(offsets, denominator).of(attention, valid)


AVERAGES = ("per_query", "per_sentence")

RAREST = Column("rarest", "int64", "types", "number of rarest types that count as a hit")
SHUFFLED = Column(
    "shuffled",
    "float64",
    "share",
    "a second control: the same head and sentences with the frequency ranks of all types shuffled",
)
HEAD_RARE_TOKEN = TableSchema(
    name="head_rare_token",
    version=2,
    description="Share of queries whose largest weight lies on one of the rarest tokens that they may attend to, in "
    "sentences that hold a rare token; m keys with the same largest weight count 1/m each.",
    columns=(
        *HEAD_KEYS,
        RAREST,
        SHUFFLED,
        *estimate_columns("share", "share of queries", "the value for uniform attention"),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RareRows(AttentionRows):
    """Attention rows of sentences with a rare token, and the rarest keys for each query."""

    base: AttentionRows  # those of all sentences
    targets: tuple[Pairs, ...]
    """For each number of rarest types: targets by frequency, then, for a corpus, by shuffled ranks."""


class RareTokenScores(AbstractHeadMeasure):
    """Share of queries whose largest weight is on a rare token (`rare_token_score`), for every head, by stack and kind.

    Special tokens count neither as queries nor as keys. Frequency ranks are those of the training corpus if it is known
    (`measure(..., ranks_from=...)`), otherwise those of the analysed corpus; tokens that never occur there are the
    rarest. A sentence counts only if its rarest token is outside the `top` most frequent ones. A query's targets are
    the rarest of its visible keys: in causal attention the tokens up to the query, in cross-attention the source
    tokens.

    Args:
        rarest: For each number n given here, the n rarest types of a sentence count as a hit, at any of their
            positions.
        top: Sentences with only the `top` most frequent tokens are left out.
        average: `"per_query"` pools queries, `"per_sentence"` averages over sentences (the paper does not say which).
        seed: Seeds the shuffled ranks.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = HEAD_RARE_TOKEN

    def __init__(
        self, rarest: Sequence[int] = (1, 2), top: int = 500, average: str = "per_query", seed: int = 0
    ) -> None:
        if average not in AVERAGES or not rarest or min(rarest) < 1 or top < 0:
            raise UserError(
                'rarest must be at least 1, top at least 0 and average "per_query" or "per_sentence". '
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

    def rows_of(self, valid: Bool[Tensor, "sentence token"], ranks: Array) -> RareRows:
        """The rows that count; `ranks`: (batch, token) frequency rank of each token, 1 = most frequent."""
        rank = as_tensor(ranks)
        if rank.shape != valid.shape:
            raise UserError(
                f"ranks must have the shape of valid, {as_written(list(valid.shape))}. "
                f"Got {as_written(list(rank.shape))}."
            )
        return self._rare(AttentionRows.of_tokens(valid), rank.masked_fill(~valid, 0), rank)

    def _rows(self, activations: Activations, key: AttentionKey, visible: Pairs) -> RareRows:
        source = keys_stack(*key)
        keys = activations.streams[source]
        ranks, shuffled = (table.to(keys.input_ids.device)[keys.input_ids] for table in self._ranks[source])
        rows = super()._rows(activations, key, visible)
        return self._rare(rows, ranks.masked_fill(~keys.valid, 0), ranks, shuffled)

    def _rare(
        self, rows: AttentionRows, counted: Int[Tensor, "sentence key"], *orders: Int[Tensor, "sentence key"]
    ) -> RareRows:
        """Rows of sentences with a `counted` rank above `top`; their targets are the rarest keys in each order."""
        admissible = rows.admissible & (counted.amax(1) > self.top)[:, None, None]
        targets = tuple(_rarest_keys(order, admissible, number) for number in self.rarest for order in orders)
        return rows.extended(RareRows, admissible=admissible, base=rows, targets=targets)

    def sums(self, weights: Weights, rows: RareRows) -> Float[Tensor, "sentence head target"]:
        return sum_on(rows.base.best(weights), rows.targets)

    def count(self, rows: RareRows) -> Float[Tensor, "sentence target"]:
        return rows.queries.sum(1, keepdim=True).expand(-1, len(rows.targets)).double()

    def keys(self) -> list[dict[str, Any]]:
        return [{RAREST: number} for number in self.rarest]

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        shown = {name: part[..., ::2] for name, part in sums.items()}
        return super()._head_rows(key, {**shown, SHUFFLED: sums["score"][..., 1::2]})


def rare_token_score(
    attention: Attention, valid: Array, ranks: Array, top: int = 500, rarest: int = 1, average: str = "per_query"
) -> Float[Tensor, "layer head"]:
    r"""Share of queries whose largest weight is on one of the sentence's rarest tokens.

    A sentence counts only if its rarest valid token is outside the `top` most frequent ones; any position of a rarest
    type is a hit. Each of m tied keys counts 1/m. Compare with the score of shuffled ranks.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        ranks: (batch, token) frequency rank of each token in the training corpus, 1 = most frequent.
        top: Sentences with only the `top` most frequent tokens are left out.
        rarest: Number of rarest types that count as a hit.
        average: `"per_query"` pools queries, `"per_sentence"` averages over sentences (the paper does not say which).

    Returns:
        Share in [0, 1]; NaN if no sentence counts.

    Raises:
        UserError: A shape is wrong, `rarest` is below 1, or the average is unknown.

    Source: [@voita2019heads].
    """
    return RareTokenScores((rarest,), top, average).of(attention, valid, ranks).squeeze(2)


def _rarest_keys(ranks: Int[Tensor, "sentence key"], admissible: Pairs, number: int) -> Pairs:
    """Keys whose rank is among the `number` highest distinct ranks that the query may attend to."""
    left = ranks.unsqueeze(1).expand(admissible.shape).masked_fill(~admissible, -1)
    found = torch.zeros_like(admissible)
    for _ in range(number):
        highest = left.amax(2, keepdim=True)
        now = (left == highest) & (highest >= 0)
        found, left = found | now, left.masked_fill(now, -1)
    return found
