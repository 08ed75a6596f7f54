"""Whether attention to a special token affects predictions: the gradient of the loss with respect to attention."""

# B sentence, H head, Q query, K key

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Intervention, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.models import AttentionCall, Model, keys_stack, tap
from infoflow.results import TableSchema, estimate_columns, ratio_estimate

from ._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK
from ._roles import NAMED, Roles
from ._rows import AttentionRows
from ._scored import ScoredBatch, SentenceScorer, no_loss

HEAD_SPECIAL_GRADIENT = TableSchema(
    name="head_special_gradient",
    version=1,
    description="Mean absolute gradient of the loss (a sentence's mean over its predicted tokens) with respect to the "
    "attention on a special token.",
    made_by="it needs a tokenizer with a SEP token, and a plan that does not leave it out",
    columns=(
        *HEAD_KEYS,
        *estimate_columns(
            "nats per unit of attention",
            "mean over queries and special tokens",
            "the same for the attention on the most frequent other tokens",
            "pairs of query and key",
        ),
    ),
)


class SpecialGradient(Intervention):
    r"""How much the loss would change with a head's attention to SEP: $|\partial L / \partial a_{ij}|$, j a SEP.

    L is a sentence's mean cross-entropy over masked, next or target tokens, so batches change nothing. A head with a
    large share of attention and a small gradient is idle. One backward pass per batch serves all heads.

    Args:
        role: "sep", "cls", "bos" or "eos", by the tokenizer's names.
        others: Number of most frequent token types used as control.
        sentences: At most this many, chosen by hash.

    Source: [@clark2019], who plot it by layer.
    """

    table: ClassVar[TableSchema] = HEAD_SPECIAL_GRADIENT

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
        # A decoder may never read the token: the last one of a target is only predicted.
        return pd.DataFrame(rows, columns=self.table.column_names).dropna(subset=["value"])

    def _batch_sums(
        self, scorer: SentenceScorer, roles: Roles, batch: ScoredBatch
    ) -> Iterator[tuple[AttentionKey, int, np.ndarray]]:
        """(64, H, 4) of each layer: sum and pairs on special tokens, then on the others."""
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
                parts += [(gradient.abs() * counted).sum((2, 3)), counted.sum((2, 3)).expand(gradient.shape[:2])]
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
        # A zero is added: the weights keep depending on the layers below, and parameters may be frozen.
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
        where = {STACK: key[0], KIND: key[1], LAYER: layer, HEAD: head}
        yield {**where, **ratio_estimate(value, pairs, float(baseline), "positive")}
