"""Attention to surface features and special tokens, and whether attention to special tokens affects predictions."""

# B sentence, H head, Q query, K key

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Intervention, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, as_tensor, as_written
from infoflow.models import AttentionCall, Model, keys_stack, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import Array, AttentionRows, Pairs, Weights, uniform_attention
from ._head_measure import (
    HEAD_KEYS,
    NAMED,
    PUNCTUATION,
    SPECIAL,
    AbstractHeadMeasure,
    Roles,
    compact,
    head_keys,
)
from ._scored import ScoredBatch, SentenceScorer, no_loss

OFFSETS: Mapping[str, int] = {"self": 0, "previous": -1, "next": 1}
"""Statistics of a key's position relative to the query."""
ENDS = ("first", "last")
ROLES = (SPECIAL, *NAMED, PUNCTUATION)
ENTROPIES = ("entropy", "first_token_entropy")
SEPARATORS = ("sep_to_sep", "rest_to_sep")
STATISTICS = (*OFFSETS, *ENDS, *ROLES, *SEPARATORS, *ENTROPIES)
_EVERYWHERE = (*ENDS, PUNCTUATION)  # statistics that count a sentence without such a key as 0

STATISTIC = Column(
    "statistic",
    "string",
    "",
    "self, previous, next: the token at the query's own, previous or next position; first, last: the sentence's first "
    "or last token; special: all special tokens; cls, sep, bos, eos: the token named so; punctuation, which is 0 in a "
    "sentence without any (before version 2 such sentences were left out; before version 3 only . and , counted, now "
    "what Unicode calls punctuation); sep_to_sep, rest_to_sep: attention on SEP from SEP, and from others; entropy; "
    "first_token_entropy: entropy of the first token's attention (CLS in BERT)",
)
HEAD_SURFACE = TableSchema(
    name="head_surface",
    version=3,
    description="Where the attention of a head goes, special tokens included: the mean share of a query's attention on "
    "chosen keys, and its entropy. A special token that the model does not have, or that occurs in no sentence, has no "
    "row.",
    light=True,
    columns=(
        *HEAD_KEYS,
        STATISTIC,
        *estimate_columns(
            "share of attention, or nats for entropies", "mean over queries", "the value for uniform attention"
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SurfaceRows(AttentionRows):
    """Rows with the tokens that the statistics are about."""

    chosen: Mapping[str, Bool[Tensor, "sentence key"]]  # by statistic: the keys whose attention is summed
    first_query: Bool[Tensor, "sentence query"]
    separators: Bool[Tensor, "sentence query"]  # queries that are SEP

    @cached_property
    def near(self) -> Bool[Tensor, "sentence pair offset"]:
        """The pairs of query and key at each of `OFFSETS`."""
        near = [self.admissible & (self.offset == offset) for offset in OFFSETS.values()]
        return torch.stack(near, dim=3).flatten(1, 2)


class SurfaceStatistics(AbstractHeadMeasure):
    r"""Attention of every head to neighbours, sentence ends, special tokens and punctuation, and its entropy.

    $$ \frac{1}{|Q|} \sum_{i \in Q} \sum_{j \in S(i)} a_{ij}, \qquad
       -\frac{1}{|Q|} \sum_{i \in Q} \sum_j \tilde a_{ij} \ln \tilde a_{ij},
       \quad \tilde a = (1 - ε) a + ε / |K_i| $$

    S(i) are the keys of a statistic. A query without such a key adds 0 and still counts; for example, the first token
    has no previous one. `of(attention, valid, roles)` computes the statistics from arrays, in the order of the table.

    Special tokens count as queries and keys unless excluded, as in [@clark2019]; `Confidence` and `Entropy` follow
    [@voita2019heads] instead. Positions count tokens without padding; in cross-attention "self" is the source token at
    the query's own position.

    Args:
        punctuation: Texts of the tokens that count as punctuation, as (".", ",") in [@clark2019]; default: all Unicode
            punctuation, in any script. A sentence without any counts as 0.
        smoothing: ε of $(1 - ε) a + ε/|K|$ before entropies.
        exclude_keys: Roles of tokens excluded as keys, see `Confidence`.
        exclude_queries: Roles of tokens excluded as queries.
        average: `"micro"`: over all queries; `"document"`: over sentences, as in [@clark2019].

    Source: [@clark2019], the authors' code; the released plotting cell swaps "left" and "right".
    """

    table: ClassVar[TableSchema] = HEAD_SURFACE

    def __init__(
        self,
        punctuation: Sequence[str] | None = None,
        smoothing: float = 1e-4,
        exclude_keys: Sequence[str] = (),
        exclude_queries: Sequence[str] = (),
        average: str = "micro",
    ) -> None:
        super().__init__(exclude_keys, exclude_queries, average)
        if not 0 <= smoothing < 1:
            raise UserError(f"smoothing must lie in [0, 1). Got {smoothing}.")
        self.punctuation = None if punctuation is None else tuple(punctuation)
        self.smoothing = smoothing

    def prepare(self, reader: Reader) -> None:
        super().prepare(reader)
        custom = [role for role in (*self.exclude_keys, *self.exclude_queries) if role not in STATISTICS]
        self._roles = Roles.of(reader, self.punctuation, custom)

    def rows_of(self, valid: Bool[Tensor, "sentence token"], roles: Mapping[str, Array] | None = None) -> SurfaceRows:
        """The rows that count; `roles`: (batch, token) masks of special, cls, sep, bos, eos and punctuation tokens.

        Statistics of missing roles are NaN, except that of punctuation, which is then 0.
        """
        if unknown := set(roles or {}) - {*ROLES}:
            raise UserError(f"roles must be among {', '.join(ROLES)}. Got {as_written(min(unknown))}.")
        masks = {role: torch.zeros_like(valid) for role in ROLES}
        masks |= {role: as_tensor(mask).bool() & valid for role, mask in (roles or {}).items()}
        order = valid.cumsum(1)
        first, last = valid & (order == 1), valid & (order == order[:, -1:])
        chosen = {"first": first, "last": last, **masks}
        rows = AttentionRows.of_tokens(valid)
        return rows.extended(SurfaceRows, chosen=chosen, first_query=first, separators=masks["sep"])

    def _rows(self, activations: Activations, key: AttentionKey, visible: Pairs) -> SurfaceRows:
        stack, target = key[0], keys_stack(*key)
        queries, keys = activations.queries_stream(key), activations.keys_stream(key)
        last = keys.position.amax(1, keepdim=True)
        chosen = {"first": keys.position == 0, "last": (keys.position == last) & keys.real}
        chosen |= {role: self._roles.where(keys, target, role) for role in ROLES}
        separators, first = self._roles.where(queries, stack, "sep"), queries.position == 0
        rows = super()._rows(activations, key, visible)
        return rows.extended(SurfaceRows, chosen=chosen, first_query=first, separators=separators)

    def sums(self, weights: Weights, rows: SurfaceRows) -> Float[Tensor, "sentence head statistic"]:
        kept = rows.kept(weights)
        on_offsets = kept.flatten(2) @ rows.near.to(kept)  # sentence, head, offset
        on_keys = kept @ torch.stack(list(rows.chosen.values()), dim=2).unsqueeze(1).to(kept)  # …, query, role
        on_separator = on_keys[..., list(rows.chosen).index("sep")]
        parts = [on_offsets.double(), on_keys.double().sum(2)]
        parts += [_over(on_separator, queries) for queries in (rows.separators, ~rows.separators)]
        entropy = self._entropies(kept, rows)
        parts += [_over(entropy, queries) for queries in (rows.queries, rows.first_query)]
        return torch.cat(parts, dim=2)

    def count(self, rows: SurfaceRows) -> Float[Tensor, "sentence statistic"]:
        """Number of queries in each sum; 0 for a special token that is not a key of the sentence.

        A sentence without punctuation counts as 0. The authors of [@clark2019] sum A · selector over n in every
        document; for such a document the selector is 0.
        """
        queries = rows.queries.sum(1).double()
        counts = [queries] * len(OFFSETS)
        counts += [queries if name in _EVERYWHERE else queries * keys.any(1) for name, keys in rows.chosen.items()]
        has_separator = rows.chosen["sep"].any(1)
        counts += [(rows.queries & part).sum(1) * has_separator for part in (rows.separators, ~rows.separators)]
        counts += [queries, (rows.queries & rows.first_query).sum(1)]
        return torch.stack([count.double() for count in counts], dim=1)

    def _entropies(self, kept: Tensor, rows: AttentionRows) -> Float[Tensor, "sentence head query"]:
        floor = self.smoothing * uniform_attention(rows.admissible)
        return torch.special.entr(kept.mul(1 - self.smoothing).add_(floor.to(kept))).sum(3, dtype=torch.float64)

    def keys(self) -> list[dict[str, Any]]:
        return [{STATISTIC: statistic} for statistic in STATISTICS]

    def scale(self, extra: dict[str, Any]) -> Scale:
        return "positive" if "entropy" in extra[STATISTIC] else "share"

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        return [compact(row) for row in super()._head_rows(key, sums)]

    def result(self) -> pd.DataFrame:
        return super().result().dropna(subset=["value"])


def _over(
    scores: Float[Tensor, "sentence head query"], queries: Bool[Tensor, "sentence query"]
) -> Float[Tensor, "sentence head 1"]:
    return scores.double().masked_fill(~queries.unsqueeze(1), 0).sum(2, keepdim=True)


HEAD_SPECIAL_GRADIENT = TableSchema(
    name="head_special_gradient",
    description="Mean absolute gradient of the loss (a sentence's mean over its predicted tokens) with respect to the "
    "attention on a special token.",
    made_by="it needs a tokenizer with a SEP token, and a plan that does not leave it out",
    columns=(
        *HEAD_KEYS,
        *estimate_columns(
            "nats per unit of attention",
            "mean over queries and special tokens",
            "the value for attention on the most frequent other tokens",
            "pairs of query and key",
        ),
    ),
)


class SpecialGradient(Intervention):
    r"""How much the loss would change with a head's attention to SEP: $|\partial L / \partial a_{ij}|$, j a SEP.

    L is a sentence's mean cross-entropy over masked, next or target tokens, so the batch size does not matter. A head
    with much attention on SEP and a small gradient does nothing there. One backward pass per batch serves all heads.

    Args:
        role: "sep", "cls", "bos" or "eos", by the tokenizer's names.
        others: Number of most frequent token types used as control.
        sentences: At most this many, chosen by hash.

    Source: [@clark2019], who plot it by layer.
    """

    table: ClassVar[TableSchema] = HEAD_SPECIAL_GRADIENT
    whole_attention: ClassVar[bool] = True
    by_token = True

    def __init__(self, role: str = "sep", others: int = 10, sentences: int = 200) -> None:
        if role not in NAMED or others < 1 or sentences < 1:
            raise UserError(
                f"role must be one of {', '.join(NAMED)}, others and sentences at least 1. "
                f"Got {role}, {others} and {sentences}."
            )
        self.role, self.others, self.sentences = role, others, sentences

    def refusal(self, model: Model) -> str | None:
        if model.tokenizer is not None and getattr(model.tokenizer, f"{self.role}_token_id", None) is None:
            return f"its tokenizer has no {self.role.upper()} token"
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        if reader.model.task == "seq2seq" and not reader.has_target:
            return pd.DataFrame(columns=self.table.column_names)
        scorer, roles = SentenceScorer(reader), Roles.of(reader)
        sums: dict[tuple[AttentionKey, int], np.ndarray] = {}
        for batch in scorer.batches(scorer.choose(self.sentences, "special-gradient"), options.tokens_per_batch):
            for key, layer, part in self._batch_sums(scorer, roles, batch):
                sums[key, layer] = sums[key, layer] + part if (key, layer) in sums else part
        rows = [row for (key, layer), part in sorted(sums.items()) for row in _rows(key, layer, part)]
        # A decoder may never read the token, since a target's last token is only predicted.
        return pd.DataFrame(rows, columns=self.table.column_names).dropna(subset=["value"])

    def _batch_sums(
        self, scorer: SentenceScorer, roles: Roles, batch: ScoredBatch
    ) -> Iterator[tuple[AttentionKey, int, np.ndarray]]:
        """(64, H, 4) for each layer: sum and number of pairs for special tokens, then for the other tokens."""
        activations = Activations(
            model=scorer.model,
            regime="clean",
            sentence_ids=batch.padded.sentence_ids,
            blocks=batch.padded.blocks,
            streams=batch.padded.streams,
        )
        blocks = activations.blocks.numpy()
        for (key, layer), gradient in attention_gradients(scorer, batch).items():
            stack = keys_stack(*key)
            special = roles.where(activations.streams[stack], stack, self.role)
            pairs = AttentionRows.of_activations(
                activations, key, activations.streams[key[0]].real, activations.streams[stack].real
            ).admissible
            parts = []
            for chosen in (special, self._frequent(scorer.reader, activations, stack)):
                counted = (pairs & chosen.unsqueeze(1)).unsqueeze(1)
                sums = (gradient.to(counted.device).abs() * counted).sum((2, 3))
                parts += [sums, counted.sum((2, 3)).expand(gradient.shape[:2])]
            table = np.zeros((NUM_BLOCKS, gradient.shape[1], len(parts)))
            np.add.at(table, blocks, torch.stack(parts, dim=2).double().cpu().numpy())
            yield key, layer, table

    def _frequent(self, reader: Reader, activations: Activations, stack: str) -> Bool[Tensor, "sentence token"]:
        stream = activations.streams[stack]
        frequent = np.argsort(-reader.frequencies[stack], kind="stable")[: self.others]
        return torch.isin(stream.input_ids, torch.from_numpy(frequent).to(stream.input_ids.device)) & stream.valid


def attention_gradients(scorer: SentenceScorer, batch: ScoredBatch) -> dict[tuple[AttentionKey, int], Tensor]:
    """Gradient (B, H, Q, K) of the sum of the sentences' mean losses with respect to the attention of each layer."""
    leaves: dict[tuple[AttentionKey, int], Tensor] = {}

    def open_leaf(call: AttentionCall) -> AttentionCall:
        # Zeros are added, so that the weights still depend on the layers below, and parameters may be frozen.
        leaf = torch.zeros_like(call.weights, requires_grad=True)
        leaves[(call.stack, call.kind), call.layer] = leaf
        return call.edited(weights=call.weights + leaf)

    with torch.inference_mode(False), torch.enable_grad(), tap(scorer.model, on_attention=open_leaf):
        loss = (scorer.losses(batch) / batch.counts.clamp(min=1)).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = zip(leaves.items(), gradients, strict=True)
    return {key: torch.zeros_like(leaf) if gradient is None else gradient for (key, leaf), gradient in found}


def _rows(key: AttentionKey, layer: int, sums: np.ndarray) -> Iterator[dict[str, Any]]:
    for head in range(sums.shape[1]):
        value, pairs, other, other_pairs = sums[:, head].T
        with np.errstate(invalid="ignore", divide="ignore"):
            baseline = other.sum() / other_pairs.sum()
        yield {**head_keys(*key, layer, head), **ratio_estimate(value, pairs, float(baseline), "positive")}
