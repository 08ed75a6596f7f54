"""A response with arrays: four bytes for the head's length, a JSON head, then the raw arrays."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def wired(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The head, which lists name and byte count of every array under `arrays`, and the arrays, little-endian.

    >>> answer = wired({"key": "a"}, {"weights": np.array([1, 2], dtype=np.uint8)})
    >>> answer[4:]
    b'{"key":"a","arrays":[["weights",2]]}\\x01\\x02'
    """
    parts = {name: _little(array) for name, array in arrays.items()}
    listed = dict(head) | {"arrays": [[name, len(data)] for name, data in parts.items()]}
    text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *parts.values()])


def unwired(answer: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The head and the arrays' bytes from the output of `wired`."""
    start = 4 + int.from_bytes(answer[:4], "little")
    head, found = json.loads(answer[4:start]), {}
    for name, size in head.pop("arrays"):
        found[name] = answer[start : start + size]
        start += size
    return head, found


def _little(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
