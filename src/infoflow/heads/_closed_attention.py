"""Closed self-attention: every position sees only itself; and the loss that this causes.

For losses the blocks below the closed ones run once. Operations of a kind with L blocks in an encoder of L and a
decoder of D blocks, in runs of one block: "upper k" and "block b alone" are 2L − 1 different sets. From the lowest
closed block up they take L(L + 1) − 1 + (2L − 1) D runs in the encoder, and D(D + 1) − 1 in the decoder. Six and six:
107 and 41, where whole passes take 132 each. In a language model of six blocks 41 instead of 66.
"""

# V variant (or token of the vocabulary), B sentence (of all variants), T query token, S key token

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import NO_LABEL, PassOptions, Reader
from infoflow.foundation import UserError, as_written
from infoflow.models import AttentionCall, FastLinear, Model, recorded_blocks, skipped_blocks, tap

from ._ablation_scores import VariantScores, summed_losses
from ._head_sets import Block, BlockSet
from ._scored import ScoredBatch, SentenceScorer
from ._variant_losses import by_first_block


@contextmanager
def closed_attention(model: Model, blocks: Iterable[Sequence[str | int]]) -> Iterator[None]:
    r"""Close the self-attention of some blocks: inside the `with` block, each of their positions sees only itself.

    $$ a_{qk} = [q = k] \quad\Rightarrow\quad \mathrm{ctx}_q = v_q $$

    A head's output is its own value, so queries and keys have no effect, and a token's state in the block depends on no
    other token. Special tokens are closed too; cross-attention stays open. Training inside trains a closed model:
    dropout of attention weights then applies to that one weight.

    Args:
        model: A loaded model; all calls of its module inside the `with` block are closed, generation too.
        blocks: As (stack, layer), layers from 0; if empty, the model is unchanged.

    Raises:
        UserError: The model has no such block, or no self-attention there.

    >>> ids = torch.tensor([[5, 6, 7, 8], [5, 9, 7, 4]])
    >>> with torch.no_grad(), closed_attention(model, [("encoder", 0), ("encoder", 1)]):
    ...     logits = model.module(ids).logits
    >>> bool(torch.allclose(logits[0, [0, 2]], logits[1, [0, 2]]))  # the same tokens among other ones
    True
    """
    with tap(model, on_attention=ClosedEdit([block_set(model, blocks)])):
        yield


class ClosedEdit:
    """Closes attention calls: in each of V variants of the batch, its own set of blocks.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`).
    """

    def __init__(self, variants: Sequence[BlockSet]) -> None:
        self._variants = list(variants)

    def __call__(self, call: AttentionCall) -> AttentionCall | None:
        closed_V = [(call.stack, call.layer) in blocks for blocks in self._variants]
        if call.kind != "self" or not any(closed_V):
            return None
        weights = call.weights
        closed_B = torch.tensor(closed_V).repeat_interleave(len(weights) // len(closed_V)).to(weights.device)
        queries, keys = weights.shape[2:]
        # With a key-value cache the queries are the last of the keys.
        own_TS = torch.eye(keys, device=weights.device, dtype=weights.dtype)[keys - queries :]
        # Not the diagonal by itself: queries and keys stay in the graph, with gradients of 0.
        return call.edited(weights=torch.where(closed_B[:, None, None, None], own_TS, weights))


def self_attention_blocks(model: Model) -> dict[str, list[Block]]:
    """The blocks with self-attention, from the lowest, by kind: "encoder-self", "decoder-self"."""
    found: dict[str, list[Block]] = {}
    for one in model.anatomy.attentions():
        if one.kind == "self":
            found.setdefault(f"{one.stack}-self", []).append((one.stack, one.layer))
    return found


def block_set(model: Model, blocks: Iterable[Sequence[Any]]) -> BlockSet:
    """The blocks as a set, checked.

    Raises:
        UserError: The model has no such block, or no self-attention there.
    """
    known = {block for own in self_attention_blocks(model).values() for block in own}
    chosen = [tuple(block) for block in blocks]
    if strange := [block for block in chosen if block not in known]:
        last = {stack: max(layer for name, layer in known if name == stack) for stack, _ in sorted(known)}
        there = ", ".join(f"({as_written(stack)}, 0..{layer})" for stack, layer in last.items())
        raise UserError(
            f"blocks must be blocks of {model.name} with self-attention, each as (stack, layer): {there or 'none'}. "
            f"Got {as_written(list(strange[0]))}. Layers count from 0."
        )
    return frozenset(chosen)


_TOGETHER = 2  # upper blocks and one block alone start at the same block


def closed_scores(
    scorer: SentenceScorer, rows: np.ndarray, closings: Sequence[BlockSet], options: PassOptions | None = None
) -> VariantScores:
    """Losses of the sentences `rows`, in nats per predicted token.

    The first is of the intact model, then one for each set of closed blocks, then that of unigram frequencies
    (`unigram_losses`).
    """
    frequencies_V = unigram_losses(scorer.reader)

    def losses(batch: ScoredBatch) -> tuple[Tensor, Tensor]:
        open_B, closed_VB = closed_losses(scorer, batch, closings)
        return open_B, torch.cat([closed_VB, sentence_sums(frequencies_V, batch)[None]])

    return summed_losses(
        scorer,
        rows,
        2 + len(closings),
        losses,
        budget=max(1, (options or PassOptions()).tokens_per_batch // _TOGETHER),
        label=f"Closing attention of {scorer.model.name}",
    )


def closed_losses(
    scorer: SentenceScorer, batch: ScoredBatch, closings: Sequence[BlockSet]
) -> tuple[Float[Tensor, " sentence"], Float[Tensor, "variant sentence"]]:
    """Summed loss of each sentence: of the intact model, and with each set of blocks closed; float64 on the CPU."""
    model = scorer.model
    with torch.no_grad(), FastLinear():
        # Open attention uses the same code as closed attention, so that they differ only in what is closed.
        with recorded_blocks(model) as recorded, tap(model, on_attention=lambda call: None):
            open_B = scorer.losses(batch).double().cpu()
        losses_VB = open_B.repeat(len(closings), 1)
        for (stack, layer), members in by_first_block(model, closings).items():
            for start in range(0, len(members), _TOGETHER):
                part = members[start : start + _TOGETHER]
                with (
                    skipped_blocks(model, recorded, stack, layer, len(part), keep_heads=False),
                    tap(model, on_attention=ClosedEdit([closings[index] for index in part])),
                ):
                    losses = scorer.losses(batch.repeated(len(part)))
                losses_VB[part] = losses.double().cpu().view(len(part), -1)
    return open_B, losses_VB


def unigram_losses(reader: Reader) -> Float[Tensor, " vocabulary"]:
    r"""$-\log p$ of each token that the model may have to predict, from its frequency, in nats (float64).

    $$ p(w) = \frac{n_w + 1}{\sum_v (n_v + 1)} $$

    Counts come from the model's training text if it is known, else from the measured corpus (`Reader.counted`). A
    causal LM and a decoder also predict the end of a sentence, never its first special token; a masked LM predicts no
    special token.
    """
    stack = reader.model.anatomy.predicts.name
    rows = reader.counted_rows(stack)
    tokens, special = np.asarray(rows.flat_ids), np.asarray(rows.flat_special)
    if reader.model.task == "masked-lm":
        asked = ~special
    else:
        begins = np.asarray(rows.offsets)[:-1][rows.lengths > 0]
        asked = np.ones(len(tokens), dtype=bool)
        asked[begins] = ~special[begins]
    size = max(len(reader.tokenizer(stack)), int(tokens.max(initial=-1)) + 1)
    counts = np.bincount(tokens[asked], minlength=size).astype(np.float64)
    return torch.from_numpy(np.log(counts.sum() + size) - np.log(counts + 1))


def sentence_sums(losses_V: Float[Tensor, " vocabulary"], batch: ScoredBatch) -> Float[Tensor, " sentence"]:
    """Each sentence's sum of `losses_V` over its predicted tokens."""
    labels = batch.labels.cpu()
    scored = labels != NO_LABEL
    return torch.where(scored, losses_V[labels.clamp(min=0)], 0.0).sum(dim=1)
