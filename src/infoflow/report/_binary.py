"""Numbers in the page: base64 bytes that its script unpacks on demand."""

import base64
import zlib
from typing import Any

import numpy as np

from ._embedding import embedded

_MISSING = 65535


def packed(array: np.ndarray) -> str:
    """The array's bytes in base64: little-endian, deflated."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def packed_json(value: Any) -> str:
    """The value as JSON, deflated, in base64: a twelfth of a chart's specification; NaN becomes null."""
    return packed_text(embedded(value))


def packed_text(text: str) -> str:
    """The text, deflated, in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def in_steps(values: np.ndarray, low: float, high: float) -> str:
    """Quantise numbers between `low` and `high` to 65,534 steps of two bytes, in base64; NaN stays missing.

    A step is finer than any digit on the page, and the result takes a quarter of the space of decimals.

    >>> in_steps(np.array([0.0, 1.0, np.nan]), 0.0, 1.0)
    'AAD+////'
    """
    values = np.asarray(values, dtype=np.float64)
    known = np.isfinite(values)
    steps = np.full(len(values), _MISSING)
    width = (high - low) or 1.0
    steps[known] = np.clip(np.rint((values[known] - low) / width * (_MISSING - 1)), 0, _MISSING - 1)
    return base64.b64encode(steps.astype("<u2").tobytes()).decode()
