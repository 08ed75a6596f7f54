"""Attention followed through the layers: rollout and flow."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from infoflow.foundation import UserError

from ._rows import Array, Attention, check_attention

_UNIT = 2**24
"""Capacities are integers for scipy: a weight of 1 becomes this many units, so flows are exact to about 1e-7."""


def attention_rollout(attention: Attention, valid: Array | None = None) -> Float[Tensor, "layer sentence query key"]:
    r"""How much of each input token reaches each position, by multiplying the layers.

    $$ R_l = \hat A_l R_{l-1}, \qquad \hat A_l = \tfrac12 \bar A_l + \tfrac12 I, \qquad R_{-1} = I $$

    $\bar A_l$ is the mean over heads; the identity stands for the residual connection. Rows sum to 1: where tokens are
    excluded, $\bar A_l + I$ among the valid ones is normalised by row. In causal models rollout favours early tokens.

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
    """Mean over heads plus the identity, among valid tokens, rows normalised."""
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
