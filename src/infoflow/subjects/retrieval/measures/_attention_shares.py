"""The attention on some tokens, absolute and relative to their number."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from infoflow.foundation import UserError


class AttentionShares(NamedTuple):
    """Shares for each distribution over tokens."""

    share: np.ndarray
    """Attention on the tokens, 0 to 1."""
    relative: np.ndarray
    """The share divided by the tokens' share of all real tokens: 1 for even attention; NaN without tokens."""


def attention_shares(
    weights: Float[np.ndarray, "..."],
    chosen: Bool[np.ndarray, "..."],
    real: Bool[np.ndarray, "..."] | None = None,
) -> AttentionShares:
    r"""Attention on the chosen tokens, absolute and relative to their share of the tokens.

    $$ s = \sum_{k \in C} a_k, \qquad r = s \cdot \frac{n}{|C|} $$

    | symbol | here      | space                      |
    |--------|-----------|----------------------------|
    | $a_k$  | `weights` | [0, 1], rows sum to 1      |
    | $C$    | `chosen`  | tokens                     |
    | $n$    | `real`    | number of tokens that are not padding |

    Args:
        weights: (..., token).
        chosen: Same shape, or broadcastable to it.
        real: Likewise; default: every token.

    Raises:
        UserError: Shapes do not match.

    >>> weights = np.array([[0.1, 0.2, 0.05, 0.4, 0.2, 0.05], [0.3, 0.1, 0.1, 0.1, 0.1, 0.3]])
    >>> shares = attention_shares(weights, np.array([[0, 0, 0, 1, 1, 0]], dtype=bool))
    >>> shares.share.round(9).tolist(), shares.relative.round(9).tolist()
    ([0.6, 0.2], [1.8, 0.6])
    """
    real = np.ones_like(chosen) if real is None else real
    try:
        np.broadcast_shapes(weights.shape[-1:], chosen.shape[-1:], real.shape[-1:])
        share = np.where(chosen, weights, 0.0).sum(axis=-1)
        num, among = np.broadcast_arrays(real.sum(axis=-1), (chosen & real).sum(axis=-1), share)[:2]
    except ValueError:
        shapes = ", ".join(str(one.shape) for one in (weights, chosen, real))
        raise UserError(
            f"weights, chosen and real must have the same number of tokens and matching rows. Got the shapes {shapes}."
        ) from None
    relative = np.full(share.shape, np.nan)
    np.divide(share * num, among, out=relative, where=among > 0)
    return AttentionShares(share, relative)
