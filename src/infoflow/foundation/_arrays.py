"""Converts users' arrays to tensors, and makes arrays read-only."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def as_tensor(x: Any) -> "Tensor":
    """`x` (a tensor on any device, an array or numbers) as a tensor on the CPU without gradient.

    Memory is shared if PyTorch can: it accepts no negative strides, and warns about read-only memory.
    """
    import torch  # not at module level, since `infoflow --help` imports the foundation

    if isinstance(x, np.ndarray):
        x = np.require(x, requirements=["C", "W"])
    return torch.as_tensor(x).detach().cpu()


def read_only(values: np.ndarray) -> np.ndarray:
    """The array itself, made read-only, since it is cached and shared by all callers."""
    values.flags.writeable = False
    return values
