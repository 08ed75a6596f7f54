"""Simpson's rule with adaptive panels, reusing every gradient."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

K = TypeVar("K", bound=Hashable)


def refined(
    ends: Mapping[K, Tensor],
    mean_at: Callable[[list[float]], Mapping[K, Tensor]],
    is_close: Callable[[Mapping[K, Tensor]], bool],
    splits: int,
    max_splits: int,
) -> tuple[dict[K, Tensor], int]:
    r"""Mean gradients on the chord, and the number of panels used.

    Simpson's sum on n panels is $(4 T_{2n} - T_n) / 3$ of the trapezoid sums T, and $T_{2n}$ needs only the midpoints
    missing from $T_n$.

    Args:
        ends: Means of the gradients at the chord's two ends.
        mean_at: Mean of the gradients at positions between 0 and 1.
        is_close: Whether such means explain the change of the losses.
        splits: Initial panels; they double until the means are close, or doubling would exceed `max_splits`.
    """
    panels, coarse = splits, ends
    if panels > 1:
        coarse = _blend(ends, mean_at([place / panels for place in range(1, panels)]), 1 / panels)
    while True:
        fine = _blend(coarse, mean_at([(place + 0.5) / panels for place in range(panels)]), 1 / 2)
        found = {key: (4 * fine[key] - coarse[key]) / 3 for key in fine}
        if is_close(found) or 2 * panels > max_splits:
            return found, panels
        coarse, panels = fine, 2 * panels


def _blend(ends: Mapping[K, Tensor], inner: Mapping[K, Tensor], weight: float) -> dict[K, Tensor]:
    """weight · ends + (1 − weight) · inner."""
    return {key: torch.lerp(inner[key], ends[key], weight) for key in ends}
