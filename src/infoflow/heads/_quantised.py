"""Weights as single bytes, for pictures: small weights keep their relative size."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

LEVELS = 255


def quantise(weights: Float[Any, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    r"""Numbers in 0..1 as bytes, $q = \mathrm{round}(255 \sqrt{a})$; a byte stands for $(q / 255)^2$.

    The square root spends bytes where weights are: over 512 keys even attention is 0.002, which equal steps would
    round to nothing. The error is at most 0.004, near 1, and less the smaller the weight.

    >>> quantise(np.array([0.0, 0.002, 0.25, 1.0])).tolist()
    [0, 11, 128, 255]
    """
    return np.rint(LEVELS * np.sqrt(np.clip(np.asarray(weights, dtype=np.float32), 0, 1))).astype(np.uint8)


def restore(bytes_: UInt8[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The weights that `quantise` wrote, up to its rounding."""
    return (bytes_.astype(np.float32) / LEVELS) ** 2
