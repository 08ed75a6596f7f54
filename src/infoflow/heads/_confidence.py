"""How much a head puts on its favourite key."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._rows import Array, Attention, AttentionRows, check_attention, largest, sum_queries


def confidence(attention: Attention, valid: Array) -> Float[Tensor, "layer head"]:
    r"""Largest attention weight of a query, averaged over all queries.

    $$ \mathrm{conf}(h) = \frac{1}{|Q|} \sum_{i \in Q} \max_{j \in K} a^h_{ij} $$

    Q and K are the valid tokens, pooled over sentences; the other columns leave before the maximum, and the
    remaining weights are not renormalised.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.

    Returns:
        Mean maximum weight in [0, 1]; NaN where no token is valid.

    Raises:
        UserError: A shape is wrong.

    Source: [@voita2019heads].

    >>> confidence(torch.full((1, 1, 1, 4, 4), 0.25), torch.ones(1, 4, dtype=torch.bool))
    tensor([[0.2500]])
    """
    weights, mask = check_attention(attention, valid)
    rows = AttentionRows.of_tokens(mask)
    sums = torch.stack([confidence_sums(layer, rows).sum(0) for layer in weights])
    return (sums / rows.queries.sum()).to(weights.dtype)


def confidence_sums(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
) -> Float[Tensor, "sentence head"]:
    """Sum of the queries' largest weights."""
    return sum_queries(largest(weights, rows)[0], rows)
