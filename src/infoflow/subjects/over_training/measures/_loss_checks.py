"""K6: a loss that does not fit between its predecessors and successors."""

import math
from collections.abc import Sequence

import numpy as np
from sklearn.isotonic import IsotonicRegression

from ._check_rows import CheckRow, WeighedCheckpoint, row

_DEVIATIONS, _NATS = 5.0, 0.1


def loss_checks(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """Losses outside the decreasing fit of all others: above earlier ones or below later ones; largest deviation first.

    Deviations exceed 5 standard errors of the two and .1 nats. Above: divergence, or a file of an earlier step; below:
    a file of a later step.
    """
    live = [one for one in series if math.isfinite(one.loss)]
    rows = []
    while len(live) > 3:
        off = [_off(live, place) for place in range(len(live))]
        worst = max(range(len(live)), key=lambda place: abs(off[place]))
        one, others = live[worst], [each for each in live if each is not live[worst]]
        spread = max((each.loss_error for each in live if math.isfinite(each.loss_error)), default=0.0) * math.sqrt(2)
        limit = max(_NATS, _DEVIATIONS * spread)
        if abs(off[worst]) <= limit:
            break
        expected = one.loss - off[worst]
        text = f"loss {one.loss:.2f} at {one.name}, {expected:.2f} expected"
        rows.append(row(one, "K6", "warning", text, value=off[worst], limit=limit))
        live = others
    return rows


def _off(live: Sequence[WeighedCheckpoint], place: int) -> float:
    """How far the loss lies outside the fit of the others on its two sides; 0: between them."""
    others = [one.loss for at, one in enumerate(live) if at != place]
    fitted = IsotonicRegression(increasing=False).fit_transform(np.arange(len(others)), np.array(others))
    loss = live[place].loss
    above = loss - fitted[place - 1] if place > 0 else 0.0
    below = loss - fitted[place] if place < len(fitted) else 0.0
    return float(max(above, 0.0) + min(below, 0.0))
