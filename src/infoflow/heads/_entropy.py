"""How widely a head spreads its attention."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._rows import Array, Attention, AttentionRows, check_attention, sum_queries


def attention_entropy(attention: Attention, valid: Array) -> Float[Tensor, "layer head"]:
    r"""Entropy of a query's attention in nats, averaged over all queries.

    $$ E(h) = -\frac{1}{|Q|} \sum_{i \in Q} \sum_{j \in K} a^h_{ij} \ln a^h_{ij} $$

    Q and K are the valid tokens, pooled over sentences. Without smoothing, and without renormalising what is left
    after exclusion.

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
    weights, mask = check_attention(attention, valid)
    rows = AttentionRows.of_tokens(mask)
    sums = torch.stack([entropy_sums(layer, rows).sum(0) for layer in weights])
    return (sums / rows.queries.sum()).to(weights.dtype)


def entropy_sums(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
) -> Float[Tensor, "sentence head"]:
    """Sum of the queries' entropies."""
    # entr(0) is 0; -a * log(a) would give NaN for masked keys.
    kept = weights.masked_fill(~rows.admissible.unsqueeze(1), 0)
    return sum_queries(torch.special.entr(kept).sum(3, dtype=torch.float64), rows)
