"""Self-attention closed: every position sees itself alone."""

# V variant, B sentence (of all variants), T query token, S key token

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from infoflow.foundation import UserError, as_written
from infoflow.models import AttentionCall, Model, tap

from ._head_sets import Block, BlockSet


@contextmanager
def closed_attention(model: Model, blocks: Iterable[Sequence[str | int]]) -> Iterator[None]:
    r"""Close the self-attention of some blocks: inside, each of their positions sees itself alone.

    $$ a_{qk} = [q = k] \quad\Rightarrow\quad \mathrm{ctx}_q = v_q $$

    A head's output is its own value, so queries and keys mean nothing, and what a token becomes in the block depends on
    no other token. Special tokens are closed too; cross-attention stays open. Training inside trains a closed model:
    dropout of attention weights then falls on that one weight.

    Args:
        model: A loaded model; all calls of its module inside the `with` block are closed, generation too.
        blocks: As (stack, layer), layers from 0; none leave the model as it is.

    Raises:
        UserError: The model has no such block, or none with self-attention there.

    >>> ids = torch.tensor([[5, 6, 7, 8], [5, 9, 7, 4]])
    >>> with torch.no_grad(), closed_attention(model, [("encoder", 0), ("encoder", 1)]):
    ...     logits = model.module(ids).logits
    >>> bool(torch.allclose(logits[0, [0, 2]], logits[1, [0, 2]]))  # the same tokens among other ones
    True
    """
    with tap(model, on_attention=ClosedEdit([block_set(model, blocks)])):
        yield


class ClosedEdit:
    """Closes attention calls: of each of V variants of the batch in its own set of blocks.

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
    """The blocks that have self-attention, from the lowest, by kind: "encoder-self", "decoder-self"."""
    found: dict[str, list[Block]] = {}
    for one in model.anatomy.attentions():
        if one.kind == "self":
            found.setdefault(f"{one.stack}-self", []).append((one.stack, one.layer))
    return found


def block_set(model: Model, blocks: Iterable[Sequence[Any]]) -> BlockSet:
    """The blocks as a set, checked.

    Raises:
        UserError: The model has no such block, or none with self-attention there.
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
