"""Distribution of single parameters' allocations: counts in fixed symmetric logarithmic bins, by group."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ._cells import Cell, Cells

_PER_DECADE, _SMALLEST, _DECADES = 2, -14, 14
_SIDE = _PER_DECADE * _DECADES  # bins of one sign
NUM_BINS = 2 * _SIDE + 1
"""Number of histogram bins: both signs in half decades, and one for zero."""


class Histogram:
    """Counts (group, bin) over all added chords: negative bins, a bin for exactly 0, positive bins.

    A bin spans half a decade, from 1e-14 nats to 1; smaller or larger values fall into the outermost bins.
    """

    def __init__(self, cells: Cells, shapes: list[torch.Size], like: Tensor) -> None:
        self.groups: list[Cell] = cells.groups
        place = torch.from_numpy(cells.merged(self.groups))[cells.cell_of_line]
        self._group = _of_elements(cells, place, shapes).to(like.device)
        self.counts = torch.zeros(len(self.groups) * NUM_BINS, dtype=torch.int64, device=like.device)
        self.chords = 0

    def add(self, allocation: Float[Tensor, " parameter"]) -> None:
        """Count one chord."""
        place = self._group.to(torch.int64).mul_(NUM_BINS).add_(bins_of(allocation))
        self.counts += torch.bincount(place, minlength=len(self.counts))
        self.chords += 1

    @property
    def counts_GB(self) -> np.ndarray:
        return self.counts.cpu().numpy().reshape(len(self.groups), NUM_BINS)

    def state(self) -> dict[str, Tensor]:
        return {"counts": self.counts, "chords": torch.tensor(self.chords)}

    def load(self, state: dict[str, Tensor]) -> None:
        if state:  # a training from before histograms continues without its first chords
            self.counts = state["counts"].to(self.counts.device, copy=True)
            self.chords = int(state["chords"])


def bins_of(values: Float[Tensor, " parameter"]) -> Int64[Tensor, " parameter"]:
    """The bin of each value; NaN counts as 0."""
    values = torch.nan_to_num(values, nan=0.0)
    size = values.abs().log10_().sub_(_SMALLEST).mul_(_PER_DECADE).floor_().clamp_(0, _SIDE - 1).add_(1)
    return size.mul_(torch.sign(values)).add_(_SIDE).to(torch.int64)


def bin_edges() -> list[tuple[float, float]]:
    """The lower and the upper end of each bin; (0, 0) is exactly 0."""
    inner = [10.0 ** (_SMALLEST + step / _PER_DECADE) for step in range(1, _SIDE)]
    positive = list(zip([0.0, *inner], [*inner, float("inf")], strict=True))
    return [(-high, -low) for low, high in reversed(positive)] + [(0.0, 0.0)] + positive


def _of_elements(cells: Cells, place: Tensor, shapes: list[torch.Size]) -> Tensor:
    """The group of each parameter element; int16 if there are few enough groups."""
    pieces, start = [], 0
    for line, shape in zip(cells.lines, shapes, strict=True):
        own, start = place[start : start + line.size], start + line.size
        axes = [line.size if dim == line.dim else 1 for dim in range(len(shape))]
        pieces.append(own.view(axes).expand(shape).reshape(-1))
    return torch.cat(pieces).to(torch.int16 if len(cells.groups) < 2**15 else torch.int32)
