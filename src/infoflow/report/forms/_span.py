"""Axis ranges."""

from typing import Any

import numpy as np


def span(*values: Any, margin: float = 0.05, flat: float = 0.1) -> tuple[float, float]:
    """Range of all known values (tables, columns, numbers), with a margin on both sides.

    Args:
        values: Values that the axis must contain.
        margin: As a share of the range.
        flat: The margin if the range is 0.

    >>> span([1.0, 3.0], float("nan"), margin=0.5)
    (0.0, 4.0)
    """
    known = np.concatenate([np.asarray(each, dtype=float).ravel() for each in values])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = margin * (high - low) or flat
    return low - room, high + room
