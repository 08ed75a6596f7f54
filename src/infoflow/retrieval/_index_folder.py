"""An index beside its passages on disk: every file is checked before it is read, and what it was made from."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file

from infoflow.foundation import UserError, as_written, atomic_folder, file_digest

from ._bm25 import LexicalIndex
from ._dense_index import DenseIndex
from ._passages import Passages

_VERSION = 2
_OLDEST = {"dense": 2, "lexical": 1}  # before 2 the encoder of a dense index was its weights alone
_ABOUT, _VECTORS = "index.json", "vectors.safetensors"
_ENCODED_BY = "passage encoder (weights, settings, pooling and tokenizer)"
_AGAIN = "Build the index again: infoflow data index CORPUS --out FOLDER."

Index = DenseIndex | LexicalIndex


class StoredIndex(NamedTuple):
    """An index as it lies on disk."""

    index: Index
    encoder: str  # digest of the passage encoder, or how terms were made


def save_index(index: Index, passages: Passages, encoder: str, folder: Path | str) -> None:
    """Write an index of `passages` into a folder of its own.

    Args:
        index: Dense, or lexical over words or token ids.
        passages: The store that it was made from; only its digest is kept.
        encoder: Digest of what turned passages into vectors, or the name of how they became terms.
        folder: An old index there is replaced as a whole.

    Raises:
        UserError: The folder cannot be written, or the index has another number of passages.
    """
    if len(index) != len(passages):
        raise UserError(f"The index must have as many passages as the store, {len(passages):,}. Got {len(index):,}.")
    with atomic_folder(Path(folder)) as temporary:
        if isinstance(index, DenseIndex):
            save_file({"vectors": index.vectors}, temporary / _VECTORS)
        else:
            index.write(temporary)
        about = {
            "version": _VERSION,
            "kind": "dense" if isinstance(index, DenseIndex) else "lexical",
            "metric": "inner product" if isinstance(index, DenseIndex) else "bm25",
            "count": len(index),
            "store": passages.digest,
            "encoder": encoder,
            "files": {path.name: file_digest(path) for path in sorted(temporary.iterdir())},
        }
        (temporary / _ABOUT).write_text(json.dumps(about), encoding="utf-8")


def load_index(
    folder: Path | str, passages: Passages, encoder: str | None = None, *, stale_ok: bool = False
) -> StoredIndex:
    """The index in a folder, if it is whole and was made from these passages by this encoder.

    Args:
        folder: As `save_index` wrote it.
        passages: The store.
        encoder: Its digest must be this one; None: any.
        stale_ok: Take an index of an older encoder (a study of staleness does).

    Raises:
        UserError: There is none, a file is missing or damaged, or it is of another store or encoder.
    """
    folder = Path(folder)
    about = _read(folder)
    _check_source(folder, "passages", about["store"], passages.digest)
    if encoder is not None and not stale_ok:
        what = _ENCODED_BY if about["kind"] == "dense" else "terms, by another tokenizer or version of infoflow"
        _check_source(folder, what, about["encoder"], encoder)
    for name, wanted in about["files"].items():
        path = folder / Path(name).name
        if not path.is_file() or file_digest(path) != wanted:
            raise UserError(
                f"{path} is {'damaged: it is not what was written' if path.exists() else 'missing'}.\n{_AGAIN}"
            )
    if (about["kind"] == "dense") != (_VECTORS in about["files"]):
        raise UserError(f"{folder / _ABOUT} is damaged: its kind is not that of its files.\n{_AGAIN}")
    index: Index
    if about["kind"] == "dense":
        index = DenseIndex(load_file(folder / _VECTORS)["vectors"])
    else:
        index = LexicalIndex.read(folder)
    return StoredIndex(index, about["encoder"])


def index_kind(folder: Path | str) -> str:
    """ "dense" or "lexical", as the index in a folder says of itself.

    Raises:
        UserError: There is none, or its description is damaged.
    """
    return _read(Path(folder))["kind"]


def _check_source(folder: Path, what: str, made: str, given: str) -> None:
    if made != given:
        raise UserError(
            f"The index in {folder} was made from other {what}: digest {made} where {given} is given.\n"
            "Build it again from these: infoflow data index CORPUS --out FOLDER."
        )


def _read(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    if not path.is_file():
        raise UserError(f"{folder} holds no index: there is no {_ABOUT}.\nName one that infoflow data index wrote.")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        version, kind = about["version"], about["kind"]
        fields = {name: about[name] for name in ("kind", "count", "store", "encoder")}
        whole = kind in _OLDEST and isinstance(version, int) and isinstance(fields["count"], int)
        whole &= all(isinstance(fields[name], str) for name in ("store", "encoder"))
        files = {str(name): str(value) for name, value in about["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole, files = False, {}
    if not whole or not files:
        raise UserError(f"{path} is damaged, or of another version of infoflow.\n{_AGAIN}")
    if not _OLDEST[kind] <= version <= _VERSION:
        raise UserError(
            f"The index in {folder} was written by another version of infoflow, in layout {as_written(version)}; this "
            f"one reads {_OLDEST[kind]} to {_VERSION} of a {kind} index.\n{_AGAIN}"
        )
    return {**fields, "files": files}
