"""States and functions of one forward pass, in the order in which they came."""

import math
from typing import Any

from torch import Tensor

from ._nodes import AbstractNode, Value


class Tape:
    """The nodes of one forward pass of one sentence."""

    def __init__(self) -> None:
        self.nodes: list[AbstractNode] = []
        self.sources: dict[str, Value] = {}  # by stack: the input of its first block
        self._values: dict[int, tuple[Tensor, Value]] = {}  # tensors are held, so that their ids stay theirs
        self._next = 0

    def new(self, tensor: Tensor) -> Value:
        """A value of its own for this tensor."""
        self._next += 1
        self._values[id(tensor)] = (tensor, self._next)
        return self._next

    def value(self, tensor: Any) -> Value | None:
        """The value that a tensor is, or None: it does not depend on any block's input."""
        held = self._values.get(id(tensor))
        return None if held is None else held[1]


def rows(states: Tensor) -> Tensor:
    """One sentence's states as (token, width)."""
    return states.detach().reshape(math.prod(states.shape[:-1]), states.shape[-1])


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    if first.shape != second.shape:
        return False
    return first.numel() == 0 or bool((first - second).abs().max() <= 1e-4 * (1 + second.abs().max()))
