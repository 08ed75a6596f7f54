"""The route of one prediction: the parts that make up its state, from the top layer down to the tokens."""

# P prediction, T token, S token of the encoder, H head

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, read_tokens, sentence_inputs
from infoflow.models import Model, keys_stack

from ._shares import AttentionShares, BlockShares, refusal, watching

THRESHOLD = 0.04
HEAD, FEED_FORWARD, RESIDUAL = "head", "feed-forward", "residual"
CROSS = "cross"
EDGES = ("stack", "layer", "sublayer", "part", "head", "token", "source_stack", "source", "importance")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Route:
    """The important edges below one prediction.

    A node is the state of one token after one sublayer: its stack, its layer, the sublayer (`"self"`, `"cross"`,
    `"feed-forward"`) and the token. Each edge leads to such a node from the state before that sublayer.

    | column of `edges` | content |
    |---|---|
    | `stack`, `layer`, `sublayer`, `token` | the node that the edge leads to |
    | `part` | `"head"`, `"feed-forward"` or `"residual"` |
    | `head` | number of the head; -1 for other parts |
    | `source_stack`, `source` | the token that the edge comes from |
    | `importance` | share of the part in the node's state, 0 to 1 |
    """

    model: str
    sentence: ReadSentence
    position: int
    """Token of the predicting stack whose prediction the route leads to, from 0."""
    threshold: float
    edges: pd.DataFrame

    def __repr__(self) -> str:
        token = list(self.sentence.tokens.values())[-1][self.position].text
        return f"Route({self.model}, {token!r} at {self.position}: {len(self.edges)} edges from {self.threshold:g})"

    @property
    def nodes(self) -> pd.DataFrame:
        """The nodes that the edges lead to, in the order of `edges`: stack, layer, sublayer, token."""
        return self.edges[["stack", "layer", "sublayer", "token"]].drop_duplicates(ignore_index=True)

    @property
    def tokens(self) -> dict[str, list[str]]:
        """Texts of the input tokens that the route reaches, by stack."""
        lowest = self.edges[(self.edges["layer"] == 0) & (self.edges["sublayer"] == "self")]
        return {
            stack: [tokens[one].text for one in sorted(set(lowest["source"][lowest["source_stack"] == stack]))]
            for stack, tokens in self.sentence.tokens.items()
        }


def find_route(
    model: Model,
    sentence: str | Sequence[int],
    translation: str | Sequence[int] | None = None,
    *,
    position: int = -1,
    threshold: float = THRESHOLD,
) -> Route:
    r"""The information-flow route of one prediction: a graph of tokens, heads and feed-forward blocks.

    Every state is a sum: after an attention, of the state before it and one part per head and source token,
    $a^h_{ij}\, f_h(x_j)$; after a feed-forward block, of the state before it and the block's output. The importance of
    a part is `part_importance`. From the last state of the token at `position` downwards, edges with importance of at
    least `threshold` are kept, and followed from the states that they come from.

    A norm after a sum (BERT) or after a part (Gemma 2) counts as a linear map, with the deviation of that token as a
    constant. Cross-attention leads to the encoder's last states. Where both blocks read the same state (parallel
    blocks), the feed-forward block counts as the second one. Biases are included in the state, but are not parts.

    Args:
        model: A loaded model in any precision.
        sentence: Text, or token ids if the model has no tokenizer.
        translation: Input of an encoder–decoder model's decoder; default: the model's own translation.
        position: Token whose prediction is followed, in the stack that predicts; negative: from the end.
        threshold: Least importance of an edge, 0 to 1; 0 keeps all edges that attention can see.

    Raises:
        UserError: The position or the threshold is out of range, the sentence cannot be read, or the model's blocks are
            not such sums.

    Source: [@ferrando2024]. Verified in the authors' code (facebookresearch/llm-transparency-tool): the importance, the
    L1 norm, top-down search with one threshold for all edges, and its values .01 to .1, by default .04, applied to each
    pair of head and source token. Their code adds the bias of values twice and leaves out models with norms after a
    sum, parallel blocks and encoder–decoders. Not verified: the paper's text.
    """
    if not 0 <= threshold < 1:
        raise UserError(f"threshold is a share of a state, at least 0 and below 1. Got {threshold}.")
    shares = sentence_shares(model, read := read_tokens(model, sentence, translation, 512))
    tokens = read.tokens[model.anatomy.predicts.name]
    if not -len(tokens) <= position < len(tokens):
        raise UserError(f"position must lie in 0..{len(tokens) - 1}, or count from the end. Got {position}.")
    position %= len(tokens)
    edges = pd.DataFrame(_edges(model, shares, position, threshold), columns=list(EDGES))
    return Route(model=model.name, sentence=read, position=position, threshold=threshold, edges=edges)


def sentence_shares(model: Model, read: ReadSentence) -> list[BlockShares]:
    """The importances in every block for one sentence, in the order of the forward pass.

    Raises:
        UserError: The model's blocks are not sums of their parts.
    """
    if reason := refusal(model):
        raise UserError(f"{model.name} has no routes: {reason}.")
    found: list[BlockShares] = []
    real = {
        stack: torch.ones(1, len(tokens), dtype=torch.bool, device=model.device)
        for stack, tokens in read.tokens.items()
    }
    with torch.no_grad(), watching(model, real, found.append):
        model.module(**sentence_inputs(model, read))
    return found


def _edges(model: Model, shares: Sequence[BlockShares], position: int, least: float) -> Iterator[tuple[Any, ...]]:
    """The kept edges from top to bottom."""
    top = model.anatomy.predicts.name
    reached = {block.stack: np.zeros(block.feed_forward.shape[1], bool) for block in shares}
    reached[top][position] = True
    for block in reversed(shares):
        own, place = reached[block.stack], (block.stack, block.layer)
        feed = block.feed_forward[0].cpu().numpy()
        below = np.zeros_like(own)
        for token in np.flatnonzero(own):
            for part, share in ((FEED_FORWARD, feed[token]), (RESIDUAL, 1 - feed[token])):
                if share >= least:
                    yield (*place, FEED_FORWARD, part, -1, token, block.stack, token, float(share))
                    below[token] = True
        for attention in reversed(block.attentions):
            own, below = below, np.zeros_like(own)
            source = keys_stack(block.stack, attention.site.kind)
            heads, kept, visible = (
                each[0].cpu().numpy() for each in (attention.heads, attention.residual, attention.visible)
            )
            into = below if source == block.stack else reached[source]
            for token in np.flatnonzero(own):
                large = (heads[:, token] >= least) & visible[token]
                for head, key in zip(*large.nonzero(), strict=True):
                    yield (*place, attention.site.kind, HEAD, head, token, source, key, float(heads[head, token, key]))
                    into[key] = True
                if kept[token] >= least:
                    yield (*place, attention.site.kind, RESIDUAL, -1, token, block.stack, token, float(kept[token]))
                    below[token] = True
        reached[block.stack] = below


# The routes of all predictions of some sentences together, without their edges.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """Which edges of one sublayer are kept, for each token."""

    stack: str
    parts: Bool[Tensor, "sentence token part"]  # any edge of each head (or of the block), then the residual's
    own: Bool[Tensor, "sentence token token"]  # edges from tokens of the same stack
    across: Bool[Tensor, "sentence token memory"] | None = None  # edges from the encoder

    @classmethod
    def of_attention(cls, shares: AttentionShares, least: float) -> "Steps":
        large_BHTS = (shares.heads >= least) & shares.visible.unsqueeze(1)
        kept_BT, any_BTS = shares.residual >= least, large_BHTS.any(1)
        parts, own = torch.cat([large_BHTS.any(3).mT, kept_BT.unsqueeze(2)], dim=2), torch.diag_embed(kept_BT)
        if shares.site.kind == CROSS:
            return cls(stack=shares.site.stack, parts=parts, own=own, across=any_BTS)
        return cls(stack=shares.site.stack, parts=parts, own=own | any_BTS)

    @classmethod
    def of_feed_forward(cls, block: BlockShares, least: float) -> "Steps":
        parts = torch.stack([block.feed_forward >= least, 1 - block.feed_forward >= least], dim=2)
        return cls(stack=block.stack, parts=parts, own=torch.diag_embed(parts.any(2)))


def followed(steps: Sequence[Steps], top: str) -> list[Bool[Tensor, "sentence prediction part"]]:
    """Whether each part of each sublayer lies in the route of each token of the stack `top`.

    Args:
        steps: The edges of every sublayer, in the order of the forward pass.
        top: The stack that predicts.
    """
    sizes: Mapping[str, int] = {one.stack: one.own.shape[1] for one in steps}
    reached = {stack: steps[0].own.new_zeros(len(steps[0].own), sizes[top], size) for stack, size in sizes.items()}
    reached[top].diagonal(dim1=1, dim2=2).fill_(True)
    found = []
    for one in reversed(steps):
        at_BPT = reached[one.stack]
        found.append(_joined(at_BPT, one.parts))
        reached[one.stack] = _joined(at_BPT, one.own)
        if one.across is not None:
            source = keys_stack(one.stack, CROSS)
            reached[source] = reached[source] | _joined(at_BPT, one.across)
    return found[::-1]


def _joined(first: Bool[Tensor, "_ _ _"], second: Bool[Tensor, "_ _ _"]) -> Bool[Tensor, "_ _ _"]:
    return first.float() @ second.float() > 0
