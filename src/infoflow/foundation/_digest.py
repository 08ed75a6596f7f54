"""Content keys: short hashes of a result's dependencies."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

LATER = {"later": True}
"""Metadata of a dataclass field added in a later version.

At its default such a field is not part of a key, so that earlier results are found again.
"""


def digest(value: Any) -> str:
    """Sixteen hex digits of a JSON-like value (dataclasses, mappings, sequences, paths and scalars)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hex, read in chunks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def named_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that belong in a key, by name: all except those of `LATER` at their default."""
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if not (field.metadata.get("later") and getattr(value, field.name) == field.default)
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return named_fields(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no content key")
