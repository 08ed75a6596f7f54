"""Regions of parameters: the rows or columns of a projection or one of its heads."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterSlice:
    """Part of one parameter tensor: all of it, or ranges of indices along one dimension.

    Ranges are half-open, in the order of the heads; fused layouts that interleave heads need more than one.

    >>> part = ParameterSlice(parameter="query.weight", dim=0, ranges=((0, 2), (6, 8)))
    >>> part.indices().tolist(), part.take(torch.arange(8)).tolist(), part.split(1, 2).ranges
    ([0, 1, 6, 7], [0, 1, 6, 7], ((6, 8),))
    """

    parameter: str
    dim: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()

    def indices(self) -> Tensor:
        """Indices along `dim`, in order; a whole parameter has none."""
        assert self.dim is not None, "a whole parameter has no indices"
        return torch.cat([torch.arange(start, stop) for start, stop in self.ranges])

    def take(self, tensor: Tensor) -> Tensor:
        """The slice of a tensor shaped like the parameter (a weight, its gradient, its allocation)."""
        if self.dim is None:
            return tensor
        parts = [tensor.narrow(self.dim, start, stop - start) for start, stop in self.ranges]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=self.dim)

    def mask(self, tensor: Tensor) -> Tensor:
        """True where an element of the parameter `tensor` belongs to the slice."""
        mask = torch.zeros(tensor.shape, dtype=torch.bool)
        if self.dim is None:
            return ~mask
        for start, stop in self.ranges:
            mask.narrow(self.dim, start, stop - start).fill_(True)
        return mask

    def split(self, index: int, parts: int) -> "ParameterSlice":
        """The `index`-th of `parts` equal pieces along `dim`: what one head owns."""
        assert self.dim is not None, "a whole parameter cannot be split between heads"
        size = sum(stop - start for start, stop in self.ranges) // parts
        return ParameterSlice(
            parameter=self.parameter, dim=self.dim, ranges=_window(self.ranges, index * size, (index + 1) * size)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The query, key, value or output projection of an attention: its weight, its bias, and each head's part.

    Query, key and value split into heads along the rows of an `nn.Linear` weight (columns when `Conv1D` stores it
    transposed) and along the bias. The output projection splits along its input; its bias belongs to no head and is
    left out here.
    """

    weight: ParameterSlice
    bias: ParameterSlice | None
    num_heads: int

    def head(self, index: int) -> tuple[ParameterSlice, ...]:
        """Slices of weight and bias that belong to one head (for keys and values: one key/value head)."""
        assert 0 <= index < self.num_heads, f"head {index} of {self.num_heads}"
        return tuple(part.split(index, self.num_heads) for part in self.slices)

    @property
    def slices(self) -> tuple[ParameterSlice, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


def _window(ranges: tuple[tuple[int, int], ...], start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Positions start..stop of the concatenated ranges, as ranges again."""
    window, offset = [], 0
    for low, high in ranges:
        first, last = max(start - offset, 0), min(stop - offset, high - low)
        if first < last:
            window.append((low + first, low + last))
        offset += high - low
    return tuple(window)
