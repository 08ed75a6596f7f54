"""Features that a frozen body computed from texts, on disk."""

# T token, D width

import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

_RECORD = struct.Struct("<16sqii")  # key, position of the first number, tokens, width


class FeatureStore:
    """Features by input key, in append-only, memory-mapped files of any size.

    Every process writes its own files and reads those that existed when it started, so several may share a folder. A
    kill leaves complete entries: numbers are written before the entry that names them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[bytes, tuple[Path, int, int, int]] = {}
        self._maps: dict[Path, np.ndarray] = {}
        for index in sorted(folder.glob("*.index")):
            self._places |= {key: place for key, *place in _entries(index)}  # type: ignore[misc]
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._own, self._index = folder / f"{name}.numbers", folder / f"{name}.index"

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: bytes) -> Float[np.ndarray, "token width"]:
        """The features of one text, a view of the file."""
        path, start, tokens, width = self._places[key]
        stop = start + tokens * width
        if path not in self._maps or len(self._maps[path]) < stop:
            self._maps[path] = np.memmap(path, dtype=np.float32, mode="r")
        return self._maps[path][start:stop].reshape(tokens, width)

    def add(self, entries: dict[bytes, Float[np.ndarray, "token width"]]) -> None:
        """Store the features of some texts."""
        records = []
        with self._own.open("ab") as file:
            for key, values_TD in entries.items():
                start = file.tell() // 4
                file.write(np.ascontiguousarray(values_TD, dtype=np.float32).data)
                records.append((key, start, *values_TD.shape))
        with self._index.open("ab") as file:
            file.write(b"".join(_RECORD.pack(*record) for record in records))
        self._places |= {key: (self._own, *place) for key, *place in records}  # type: ignore[misc]


def _entries(index: Path) -> Iterator[tuple[bytes, Path, int, int, int]]:
    """Key and location of each entry, without entries that a kill cut off."""
    numbers = index.with_suffix(".numbers")
    data = index.read_bytes()
    for key, start, tokens, width in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield key, numbers, start, tokens, width
