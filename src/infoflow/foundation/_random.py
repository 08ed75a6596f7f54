"""Counter-based random streams: a number depends only on its key, never on the order of draws."""

import hashlib
from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

import numpy as np

Key = SupportsIndex | str  # NumPy integers and plain ones of equal value are equal keys

# Odd constants of splitmix64 (Steele, Lea and Flood 2014).
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _digest(key: Sequence[Key], size: int) -> int:
    parts = "\x1f".join(f"str:{part}" if isinstance(part, str) else f"int:{index(part)}" for part in key)
    return int.from_bytes(hashlib.blake2b(parts.encode(), digest_size=size).digest(), "little")


def hash64(*key: Key) -> int:
    """A 64-bit hash of the key, the same in every process and on every machine."""
    return _digest(key, 8)


def stream(*key: Key) -> np.random.Generator:
    """A NumPy generator whose whole sequence is a function of `key`.

    Use one stream per purpose and index, for example ``stream("masking", seed, epoch, sentence_id)``: the draw is then
    independent of the batch, the process and the order of calls.
    """
    return np.random.Generator(np.random.Philox(key=_digest(key, 16)))


def hash64_array(key: Sequence[Key], *columns: np.ndarray) -> np.ndarray:
    """Hash integer columns element by element into uint64, keyed by `key` (vectorised `hash64`).

    Each column is folded in by one round of splitmix64, so the result is a function of (key, row) only.
    """
    state = np.full(np.broadcast_shapes(*(np.shape(column) for column in columns)), hash64(*key), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            state = _splitmix(state ^ _splitmix(np.asarray(column).astype(np.int64).view(np.uint64)))
    return state


def _splitmix(values: np.ndarray) -> np.ndarray:
    z = values + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))
