"""Arrays as a user has them, as tensors; arrays that nobody may change."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def as_tensor(x: Any) -> "Tensor":
    """`x` (a tensor on any device, an array or numbers) as a tensor on the CPU without gradient.

    Memory is shared where PyTorch can: it takes no negative strides, and warns about read-only memory.
    """
    import torch  # not at module level: the foundation is imported by `infoflow --help`

    if isinstance(x, np.ndarray):
        x = np.require(x, requirements=["C", "W"])
    return torch.as_tensor(x).detach().cpu()


def read_only(values: np.ndarray) -> np.ndarray:
    """The array itself, closed to writing: one that is kept and given to every caller."""
    values.flags.writeable = False
    return values
