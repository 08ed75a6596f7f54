"""Attention followed from each prediction down to the embeddings: rollout and flow."""

# N seed, T token, S memory token, H head
# B copy (1), H head, T query token, S key token

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model, tap

from .._rows import Array, Attention, check_attention
from ._request import Place, Request, SentenceRelevance, without_cache

# Attention followed through the layers: rollout and flow.


_UNIT = 2**24
"""Capacities are integers for scipy: a weight of 1 becomes this many units, so flows are exact to about 1e-7."""


def attention_rollout(attention: Attention, valid: Array | None = None) -> Float[Tensor, "layer sentence query key"]:
    r"""How much of each input token reaches each position, by multiplying the layers.

    $$ R_l = \hat A_l R_{l-1}, \qquad \hat A_l = \tfrac12 \bar A_l + \tfrac12 I, \qquad R_{-1} = I $$

    $\bar A_l$ is the mean over heads, and the identity stands for the residual connection. Rows sum to 1: if tokens are
    excluded, the rows of $\bar A_l + I$ among the valid tokens are normalised. In causal models rollout favours early
    tokens.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query. Default: all valid.

    Returns:
        (layer, batch, query, key); 0 in rows and columns of invalid tokens.

    Raises:
        UserError: A shape is wrong.

    Source: [@abnar2020].
    """
    mixed = _with_residual(attention, valid)
    rolled = [mixed[0]]
    for layer in mixed[1:]:
        rolled.append(layer @ rolled[-1])
    return torch.stack(rolled)


def attention_flow(attention: Attention, valid: Array | None = None) -> Float[Tensor, "sentence query key"]:
    r"""How much of each input token can reach each position of the top layer, as a maximum flow.

    The layered graph has an edge of capacity $\hat A_l[i, j]$ (see `attention_rollout`) from position i above block l
    to position j below it. The flow from the top position i to the input j is normalised over j.

    The cost grows with the fourth power of the sentence length: use it for single sentences.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query. Default: all valid.

    Returns:
        (batch, query, key), rows sum to 1; 0 in rows and columns of invalid tokens. Exact to about 1e-6.

    Raises:
        UserError: A shape is wrong, or the batch is empty.

    Source: [@abnar2020].
    """
    mixed = _with_residual(attention, valid)
    if mixed.shape[1] == 0:
        raise UserError("attention must hold at least one sentence. Got a batch of 0.")
    flows = [_sentence_flow(mixed[:, sentence].double().numpy()) for sentence in range(mixed.shape[1])]
    flow = torch.from_numpy(np.stack(flows)).to(mixed.dtype)
    return flow / flow.sum(2, keepdim=True).clamp(min=torch.finfo(flow.dtype).tiny)


def _with_residual(attention: Attention, valid: Array | None) -> Float[Tensor, "layer sentence query key"]:
    """Mean over heads plus the identity, for valid tokens, with normalised rows."""
    weights, mask = check_attention(attention, valid)
    pairs = (mask.unsqueeze(1) & mask.unsqueeze(2)).unsqueeze(0)
    # Filled before adding: rows of padding may hold NaN.
    mixed = weights.masked_fill(~pairs.unsqueeze(2), 0).mean(2) + torch.eye(mask.shape[1]).to(weights) * pairs
    return mixed / mixed.sum(3, keepdim=True).where(mask.unsqueeze(2), 1)


def _sentence_flow(mixed: Float[np.ndarray, "layer query key"]) -> Float[np.ndarray, "query key"]:
    """Maximum flow from every top position to every input position."""
    num_layers, n, _ = mixed.shape
    capacity = np.rint(mixed * _UNIT).astype(np.int32)
    layer, query, key = np.nonzero(capacity)
    # Node (state s, position p) is s · n + p; block l leads from state l + 1 down to state l.
    graph = csr_array(
        (capacity[layer, query, key], ((layer + 1) * n + query, layer * n + key)), shape=((num_layers + 1) * n,) * 2
    )
    flow = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            flow[i, j] = maximum_flow(graph, num_layers * n + i, j).flow_value / _UNIT
    return flow


# How attention mixes tokens, followed from each prediction down to the embeddings; rollout and flow.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Mixing:
    """The shares that form each token after an attention and its residual; `own` and `across` together sum to 1."""

    own: Float[Tensor, "token token"]
    """Shares of the stack's own tokens at the input of the attention."""
    across: Float[Tensor, "token memory"] | None
    """Shares of the encoder's tokens, in cross-attention."""
    heads: Float[Tensor, "token head"]
    """Contribution of each head to each token."""


def follow(model: Model, mixings: Mapping[Place, Mixing], positions: Int[Tensor, " seed"]) -> SentenceRelevance:
    """Product of the mixings from the predictions' states downwards.

    A head's relevance is its contribution to each token, weighted by how much of that token reaches the prediction.
    """
    stacks = [stack.name for stack in model.anatomy.stacks]
    reaching: dict[str, Tensor] = {}
    heads: dict[Place, Tensor] = {}
    top = stacks[-1]
    for (stack, kind, layer), mixing in _downwards(mixings, stacks):
        if stack not in reaching:
            start = mixing.own.new_zeros(len(positions), len(mixing.own))
            if stack == top:
                start[torch.arange(len(positions)), positions] = 1
            reaching[stack] = start
        at_NT = reaching[stack]
        heads[stack, kind, layer] = at_NT @ mixing.heads
        reaching[stack] = at_NT @ mixing.own
        if mixing.across is not None:
            before = reaching.get(stacks[0])
            arriving = at_NT @ mixing.across
            reaching[stacks[0]] = arriving if before is None else before + arriving
    return SentenceRelevance(heads=heads, tokens={stack: reaching[stack] for stack in stacks})


def _downwards(mixings: Mapping[Place, Mixing], stacks: list[str]) -> list[tuple[Place, Mixing]]:
    """Attentions from top to bottom: a decoder before the encoder, in a layer cross-attention before self-attention."""
    return sorted(mixings.items(), key=lambda item: (-stacks.index(item[0][0]), -item[0][2], item[0][1] == "self"))


def rollout_relevance(request: Request) -> SentenceRelevance:
    r"""Attention, averaged over heads and with half of each token from its residual, multiplied through the layers.

    $$ \hat A = \tfrac12 \bar A + \tfrac12 I $$

    This is for self-attention; in cross-attention half of a token comes from the encoder. By construction all heads of
    a layer carry the same amount. So a head's relevance is the part that it moves between tokens (j ≠ i) and that
    reaches the prediction; all heads of a cross-attention have the same relevance.

    Source: [@abnar2020], for tokens; the relevance of heads is ours.
    """
    model, attention = request.model, _attention(request)
    mixings = {}
    for one in model.anatomy.attentions():
        weights_HTS = attention[one.stack, one.kind][one.layer][0]
        mean_TS = weights_HTS.sum(0) / max(1, one.num_heads)
        own_TT = torch.eye(weights_HTS.shape[1]).to(weights_HTS)
        half = own_TT / 2 if one.num_heads else own_TT  # where all heads were pruned away tokens go on as they are
        carried_HT = weights_HTS.sum(2)
        if one.kind == "self":
            carried_HT = carried_HT - weights_HTS.diagonal(dim1=1, dim2=2)
        mixings[one.stack, one.kind, one.layer] = Mixing(
            own=mean_TS / 2 + half if one.kind == "self" else half,
            across=mean_TS / 2 if one.kind == "cross" else None,
            heads=carried_HT.T / (2 * max(1, one.num_heads)),
        )
    return follow(model, mixings, request.predictions.positions)


def flow_relevance(request: Request) -> SentenceRelevance:
    """Relevance of tokens by `attention_flow`; there is none of heads.

    Raises:
        UserError: The model has an encoder and a decoder, between which the published graph has no edges.
    """
    if len(request.model.anatomy.stacks) > 1:
        raise UserError(f'method="flow" is for single stacks; {request.model.name} has two. Use method="rollout".')
    ((key, layers),) = _attention(request).items()
    mask = request.predictions.inputs.get("attention_mask")
    flow_TS = attention_flow([_mean(layer).cpu() for layer in layers], None if mask is None else mask.cpu())[0]
    return SentenceRelevance(heads={}, tokens={key[0]: flow_TS[request.predictions.positions]})


def _mean(weights: Float[Tensor, "sentence head query key"]) -> Float[Tensor, "sentence 1 query key"]:
    """Mean over heads, whose number differs between layers of a pruned model; the identity if none is left."""
    if weights.shape[1]:
        return weights.mean(1, keepdim=True)
    return torch.eye(weights.shape[2]).to(weights).expand(len(weights), 1, -1, -1)


def _attention(request: Request) -> dict[tuple[str, str], list[Tensor]]:
    with torch.no_grad(), tap(request.model, attention=True) as seen:
        request.model.module(**request.predictions.inputs, **without_cache(request.model))
    return dict(seen.attention)
