"""In-context learning: how much easier late tokens are than early ones."""

import numpy as np
from numpy.typing import ArrayLike

from infoflow.foundation import UserError

_LONG = 512
_SHORT = 64


def in_context_gain(loss_by_position: ArrayLike, i: int, j: int, window: int = 5) -> float:
    r"""\(g(i, j) = L_i - L_j\), nats: positive if later tokens are easier.

    Source: [@olsson2022context], whose score is −g.

    Args:
        loss_by_position: Mean loss of the first, second, ... token of a text; NaN if there is none.
        i: The early token, counted from 1.
        j: The late token.
        window: L_p is the mean over existing tokens p − window .. p + window.

    Raises:
        UserError: The texts are too short.
    """
    losses = np.asarray(loss_by_position, dtype=np.float64)
    if not 1 <= i < j <= len(losses) or window < 0:
        raise UserError(
            f"An in-context gain needs an early and a late token among the {len(losses)} of a text, and a window from "
            f"0. Got tokens {i} and {j}, window {window}."
        )
    early, late = (np.nanmean(losses[max(place - 1 - window, 0) : place + window]) for place in (i, j))
    return float(early - late)


def context_positions(length: int) -> tuple[int, int] | None:
    """Which tokens to compare in texts of `length` tokens: 50 and 500, or in shorter texts those at 10 % and 98 %.

    None below 64 tokens. 50 and 500 are the paper's choice; the others are ours.
    """
    if length < _SHORT:
        return None
    if length >= _LONG:
        return 50, 500
    return (2 * length + 10) // 20, (2 * 98 * length + 100) // 200
