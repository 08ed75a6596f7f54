"""Attention of each head on the first token, special tokens and punctuation, and the length of their values."""

# B sentence, H head, Q query, K key, C class of keys: those of `CLASSES`, then the learned sink

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from infoflow.flow import PaddedBatch, PassOptions, Reader, forward, query_block
from infoflow.foundation import UserError
from infoflow.heads._head_measure import HEAD_KEYS, Roles
from infoflow.models import AttentionCall, keys_stack, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._tokens import CLASSES, TOKEN, AbstractSentenceMeasure, BlockSums, classes_of

LEARNED = "learned"
STATISTIC = Column(
    "statistic",
    "string",
    "",
    "share: mean share of a query's attention; rate: share of sentences in which the mean over queries exceeds "
    "`threshold`; value_norm: length of these tokens' values as a multiple of the other tokens', mean over sentences",
)
ATTENTION_SINK = TableSchema(
    name="attention_sink",
    version=1,
    description="Where the attention of each head goes, and how long the values of these tokens are. The shares of the "
    "classes of tokens add up to 1. The first token's own query is left out, since in causal attention it has no other "
    "key.",
    columns=(
        *HEAD_KEYS,
        TOKEN.named("token", f"{TOKEN.description}; {LEARNED}: the sink that the model has learned, not a token's key"),
        STATISTIC,
        Column("threshold", "float64", "share of attention", "share above which a sentence counts for the rate"),
        *estimate_columns(
            "share of attention, share of sentences, or ratio of lengths",
            "mean over queries or sentences",
            "value for uniform attention; for value_norm: 1, the ratio of equally long values",
            "queries or sentences",
        ),
    ),
)


@dataclass(slots=True, eq=False)
class _Seen:
    """One layer's sums over the queries of each sentence of a batch."""

    weight: Float[Tensor, "sentence head class"]
    uniform: Float[Tensor, "sentence class"]
    queries: Float[Tensor, " sentence"]
    norm: Float[Tensor, "sentence head class"]  # mean length of the values of the class; NaN without such a token


class AttentionSinks(AbstractSentenceMeasure):
    r"""Attention of every head on classes of tokens, how often it is a sink, and the length of the values there.

    $$ \frac{1}{|Q|} \sum_{i \in Q} \sum_{j \in c} a_{ij}, \qquad
       \frac{1}{|S|} \sum_s \Big[\frac{1}{|Q_s|} \sum_{i \in Q_s} \sum_{j \in c} a_{ij} > ε\Big], \qquad
       \frac{1}{|S|} \sum_s \frac{\overline{\lVert v_j \rVert}_{j \in c}}{\overline{\lVert v_j \rVert}_{j \in o}} $$

    Q are all queries but that of the first token (in cross-attention all queries), c is a class of keys, and o are the
    tokens that are neither first nor special nor punctuation. A learned sink (gpt-oss) is a key without a token: its
    share is 1 minus the sum of the weights on tokens. The uniform head spreads equal weights over all keys that the
    model lets a query see, including the learned sink.

    Args:
        sentences: Maximum number of sentences.
        threshold: ε.

    Source: share on the first token [@xiao2024]; rate with ε = 0.3, and lengths of values [@gu2025]. Their mean
    includes the first token's attention on itself, which adds (1 − a)/T to a sentence of T tokens.
    """

    table: ClassVar[TableSchema] = ATTENTION_SINK
    by_token = True

    def __init__(self, sentences: int = 1000, threshold: float = 0.3) -> None:
        super().__init__(sentences)
        if not 0 <= threshold < 1:
            raise UserError(f"threshold must lie in [0, 1), a share of attention. Got {threshold}.")
        self.threshold = threshold

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        roles, sums = Roles.of(reader), BlockSums()
        for batch in self.batches(reader, options):
            for key, seen in _read(reader, roles, batch, options).items():
                self._add(sums, key, seen, batch.blocks)
        rows = [row for key, own in sums for row in self._rows(key, own)]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _add(self, sums: BlockSums, key: tuple[str, str, int], seen: _Seen, blocks: Tensor) -> None:
        queries = seen.queries[:, None, None].expand_as(seen.weight)
        uniform, size = seen.uniform.unsqueeze(1).expand_as(seen.weight), queries.clamp(min=1)
        ratio = seen.norm / seen.norm[..., [CLASSES.index("other")]]
        parts = {
            "weight": seen.weight,
            "uniform": uniform,
            "queries": queries,
            "above": seen.weight / size > self.threshold,
            "uniform_above": uniform / size > self.threshold,
            "sentences": queries > 0,
            "ratio": ratio.nan_to_num(),
            "ratios": ~ratio.isnan(),
        }
        for name, part in parts.items():
            sums.add(key, name, part, blocks)

    def _rows(self, key: tuple[str, str, int], sums: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        for head, (number, token) in product(range(sums["weight"].shape[1]), enumerate((*CLASSES, LEARNED))):
            own = {name: of_block[:, head, number] for name, of_block in sums.items()}
            total = {name: of_block.sum() for name, of_block in own.items()}
            if total["uniform"] == 0:
                continue
            place = dict(zip(HEAD_KEYS, (*key, head), strict=True)) | {"token": token, "threshold": self.threshold}
            share, rate = total["uniform"] / total["queries"], total["uniform_above"] / total["sentences"]
            yield {**place, STATISTIC: "share", **ratio_estimate(own["weight"], own["queries"], share, "share")}
            yield {**place, STATISTIC: "rate", **ratio_estimate(own["above"], own["sentences"], rate, "share")}
            if total["ratios"] and token in CLASSES[:-1]:
                yield {**place, STATISTIC: "value_norm", **ratio_estimate(own["ratio"], own["ratios"], 1.0, "positive")}


def _read(reader: Reader, roles: Roles, batch: PaddedBatch, options: PassOptions) -> dict[tuple[str, str, int], _Seen]:
    """The sums of every attention of a forward pass."""
    classes = {stack: classes_of(roles, stream, stack) for stack, stream in batch.streams.items()}
    found: dict[tuple[str, str, int], _Seen] = {}

    def read(call: AttentionCall) -> None:
        if not call.weights.shape[1]:  # all heads of a pruned layer are removed
            return
        key, keys = (call.stack, call.kind, call.layer), classes[keys_stack(call.stack, call.kind)]
        rows = slice(call.start, call.start + call.weights.shape[2])
        stream = batch.streams[call.stack].part(rows)
        queries = stream.real & stream.counted
        block = _sums(call, queries & (stream.position > 0) if call.kind == "self" else queries, keys)
        if key not in found:
            found[key] = block
        else:
            before = found[key]
            before.weight, before.uniform = before.weight + block.weight, before.uniform + block.uniform
            before.queries = before.queries + block.queries

    longest = max(stream.input_ids.shape[1] for stream in batch.streams.values())
    size = query_block(reader.model, longest, options)
    with torch.inference_mode(), tap(reader.model, on_attention=read, query_block=size):
        forward(reader.model, batch)
    return found


def _sums(call: AttentionCall, queries: Tensor, classes: Int[Tensor, "sentence key"]) -> _Seen:
    device = call.weights.device
    queries, classes = queries.to(device), classes.to(device)
    of_class = one_hot(classes + 1, len(CLASSES) + 1)[..., 1:].float()  # (B, K, C), padding in none
    visible = (call.visible() & (classes >= 0).unsqueeze(1)).float()
    weights = call.weights.float().masked_fill(~queries[:, None, :, None], 0)
    on_class = weights @ of_class.unsqueeze(1)  # (B, H, Q, C)
    learned = queries.unsqueeze(1).float() - on_class.sum(3)
    seen = visible @ of_class  # (B, Q, C): number of keys
    sinks = torch.full_like(seen[..., :1], float(call.sinks is not None))
    uniform = torch.cat([seen, sinks], dim=2)
    uniform = uniform / uniform.sum(2, keepdim=True).clamp(min=1) * queries.unsqueeze(2)
    lengths = call.value.float().norm(dim=-1)  # (B, H, K)
    mean = (lengths @ of_class) / of_class.sum(1, keepdim=True)  # 0/0 is NaN
    return _Seen(
        weight=torch.cat([on_class.sum(2), learned.sum(2, keepdim=True).clamp(min=0)], dim=2).double(),
        uniform=uniform.sum(1).double(),
        queries=queries.sum(1).double(),
        norm=torch.cat([mean, torch.full_like(mean[..., :1], torch.nan)], dim=2).double(),
    )
