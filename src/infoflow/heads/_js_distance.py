"""How differently two heads attend."""

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._rows import Array, Attention, AttentionRows, check_attention


def js_distance(
    attention: Attention, valid: Array, reduction: str = "sum", smoothing: float = 0.0
) -> Float[Tensor, "head head"]:
    r"""Jensen–Shannon divergence between all pairs of heads, summed over queries, in nats.

    $$ D(g, h) = \sum_{i \in Q} H\Big(\frac{a^g_i + a^h_i}{2}\Big) - \frac{H(a^g_i) + H(a^h_i)}{2} $$

    H is the entropy over the valid keys, without renormalising what is left after exclusion. Heads are in the order
    layer · num_heads + head.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        reduction: `"sum"` over queries, as [@clark2019] compute it, or their `"mean"`, as they describe it.
        smoothing: ε of $(1 - ε) a + ε/|K|$ before comparing; [@clark2019] use 0.001.

    Returns:
        Symmetric, with zero diagonal; each query adds at most ln 2.

    Raises:
        UserError: A shape is wrong, the reduction is unknown, or ε outside [0, 1).

    Source: [@clark2019].
    """
    weights, mask = check_attention(attention, valid)
    if reduction not in ("sum", "mean") or not 0 <= smoothing < 1:
        raise UserError(
            f'reduction must be "sum" or "mean" and smoothing lie in [0, 1). Got {reduction} and {smoothing}.'
        )
    rows = AttentionRows.of_tokens(mask)
    num = weights.shape[0] * weights.shape[2]
    total = torch.zeros(num, num, dtype=torch.float64)
    for sentence, real in enumerate(mask):
        if real.any():
            heads = weights[:, sentence].flatten(0, 1)[:, real][:, :, real].double()
            heads = (1 - smoothing) * heads + smoothing / heads.shape[2]
            total += _pairwise(heads.flatten(1))
    queries = int(rows.queries.sum())
    return (total / queries if reduction == "mean" else total).to(weights.dtype)


def _pairwise(heads: Float[Tensor, "head entry"]) -> Float[Tensor, "head head"]:
    """Divergence between all pairs of heads: the entropy of a sum over entries, so queries add up by themselves."""
    entropy = torch.special.entr(heads).sum(1)
    mixed = torch.stack([torch.special.entr((heads + head) / 2).sum(1) for head in heads])
    # Rounding leaves −1e-17 between equal heads.
    return (mixed - (entropy.unsqueeze(0) + entropy.unsqueeze(1)) / 2).clamp(min=0)
