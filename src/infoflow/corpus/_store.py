"""Sentences as Arrow tables: in memory if they are few, else in memory-mapped files of the cache."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from infoflow._transformers import Dataset
from infoflow.foundation import UserError, current_display, disagreement, kept, read_object, sweep_stale

from ._alignment import running_text, word_starts
from ._columns import WORD_STARTS, Row, arrow_schema
from ._tables import NEEDED

_FULL = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EFBIG: "A file would exceed the limit of the file system or of ulimit -f",
}


def cache_folder() -> Path:
    """`$INFOFLOW_CACHE`, else `infoflow` under `$XDG_CACHE_HOME`, else `~/.cache/infoflow`; safe to delete."""
    try:
        if own := os.environ.get("INFOFLOW_CACHE"):
            return Path(own).expanduser()
        shared = os.environ.get("XDG_CACHE_HOME")
        # The XDG specification requires relative paths to be ignored.
        base = Path(shared) if shared and Path(shared).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:  # no such user, or a user without a home
        raise UserError(f"No cache folder was found: {error}.\nSet INFOFLOW_CACHE to a writable folder.") from None
    return base / "infoflow"


def cached(place: str, make: Callable[[Path], object], what: str) -> Path:
    """The folder `place` of the cache, filled by `make` if it is missing; leftovers of killed processes are removed."""
    root = cache_folder()
    folder = root / place
    if disagreement(folder) is None:
        return folder
    with room_in_cache(folder.parent, what):
        for each in (root, *_subfolders(root)):
            sweep_stale(each)
        return kept(folder, make, what)


@contextmanager
def room_in_cache(folder: Path, what: str) -> Iterator[None]:
    """Create `folder` in the cache; a full disk inside the block raises an error that names `what`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"{what} cannot be cached in {folder}: {(error.strerror or str(error)).lower()}.\n"
            "Set INFOFLOW_CACHE to a writable folder."
        ) from None
    try:
        yield
    except OSError as error:
        if (reason := _FULL.get(error.errno or 0)) is None:
            raise
        raise UserError(
            f"{reason}: {what} could not be cached in {folder}.\n"
            "Free some space there, or set INFOFLOW_CACHE to another folder."
        ) from error


def _subfolders(root: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return []


# Turns a stream of sentences into an Arrow table: in memory if it is small, else a memory-mapped cache file.


BATCH = 4096
"""Sentences per Arrow record batch.

A corpus of one batch stays in memory, since rereading it is faster than a cache lookup.
"""

_WORDS_VERSION = 2  # increase when the words of the same rows are stored differently
_MUST_HAVE = NEEDED | {"answers", "translation"}
_CORPORA, _DATA, _FACTS = "corpora", "data.arrow", "corpus.json"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stored:
    """A corpus as an Arrow dataset."""

    dataset: Dataset
    digest: str  # of the content, whether it comes from .gz, plain text or another source
    dropped: int  # lines of the source without a sentence


def store(rows: Iterable[Row | None], columns: Sequence[str], name: str, key: str | None = None) -> Stored:
    """Store `rows`, which are read batch by batch; None marks a line without a sentence.

    Rows with words get `word_starts` if their reader does not set them. A text that differs from its words is replaced
    by them (`running_text`), so that encoding, display and splitting use the same text.

    `key` identifies the rows; an existing cache file with that key is used instead of `rows`. Without a key the rows
    are always read, and the file is named by its content.
    """
    if "words" in columns:
        key = key and f"{key}-{_WORDS_VERSION}"
        rows, columns = map(_with_starts, rows), list(dict.fromkeys([*columns, WORD_STARTS]))
    if key and disagreement(folder := cache_folder() / _place(key)) is None:
        return _open(folder)
    batches = _Batches(rows, arrow_schema(columns))
    first = next(batches, None)
    if first is None:
        raise _empty(name, columns, batches.dropped)
    if first.num_rows < BATCH:
        return Stored(dataset=Dataset(pa.table(first)), digest=batches.digest, dropped=batches.dropped)
    return _write(first, batches, name, key)


def _empty(name: str, columns: Sequence[str], dropped: int) -> UserError:
    needed = [column for column in columns if column in _MUST_HAVE]
    if needed and dropped:
        listed = f"{', '.join(['text', *needed[:-1]])} and {needed[-1]}"
        return UserError(
            f"Each example needs {listed}. In {name} none of {dropped:,} examples has all of these filled.\n"
            "Correct the file, or name other columns."
        )
    return UserError(f"The corpus {name} has no sentence ({dropped} lines without one).\nUse a file with text in it.")


def _with_starts(row: Row | None) -> Row | None:
    """The row with the position of each word; its text is replaced by the words if it differs."""
    if row is None or row.get(WORD_STARTS) is not None:
        return row
    if row["words"] is None:
        return {**row, WORD_STARTS: None}
    if (starts := word_starts(row["text"], row["words"])) is not None:
        return {**row, WORD_STARTS: starts}
    text, starts = running_text(row["words"])
    return {**row, "text": text, WORD_STARTS: starts}


class _Batches:
    """An iterator over record batches that counts and hashes the content as it passes."""

    def __init__(self, rows: Iterable[Row | None], schema: pa.Schema) -> None:
        self.dropped = 0
        self.sentences = 0
        self._rows = self._kept(rows)
        self._schema = schema
        self._hash = hashlib.sha256(json.dumps([name for name in schema.names if name != WORD_STARTS]).encode())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        rows = list(islice(self._rows, BATCH))
        if not rows:
            raise StopIteration
        columns = {name: [row[name] for row in rows] for name in self._schema.names}
        content = [values for name, values in columns.items() if name != WORD_STARTS]
        # Words separated by single spaces determine their own positions.
        if WORD_STARTS in columns and any(row["text"] != " ".join(row["words"] or ()) for row in rows):
            content.append(columns[WORD_STARTS])
        self._hash.update(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        self.sentences += len(rows)
        return pa.record_batch(columns, schema=self._schema)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def _kept(self, rows: Iterable[Row | None]) -> Iterator[Row]:
        for row in rows:
            if row is None:
                self.dropped += 1
            else:
                yield row


def _write(first: pa.RecordBatch, batches: _Batches, name: str, key: str | None) -> Stored:
    def write(folder: Path) -> None:
        _write_batches(folder / _DATA, first, batches, name)
        facts = {"name": name, "digest": batches.digest, "dropped": batches.dropped, "sentences": batches.sentences}
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    if key:
        return _open(cached(_place(key), write, f"The corpus {name}"))
    # The content determines the name, which is known only at the end.
    corpora = cache_folder() / _CORPORA
    with (
        room_in_cache(corpora, f"The corpus {name}"),
        TemporaryDirectory(prefix=".incoming.", suffix=".partial", dir=corpora) as incoming,
    ):
        write(Path(incoming))

        def move(folder: Path) -> None:
            for path in Path(incoming).iterdir():
                path.replace(folder / path.name)

        return _open(cached(_place(batches.digest), move, f"The corpus {name}"))


def _write_batches(path: Path, first: pa.RecordBatch, batches: _Batches, name: str) -> None:
    with (
        current_display().progress(f"reading {name}", total=0, unit="sentences") as progress,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, first.schema) as writer,
    ):
        batch: pa.RecordBatch | None = first
        while batch is not None:
            writer.write_batch(batch)
            progress.advance(batch.num_rows)
            batch = next(batches, None)


def _place(key: str) -> str:
    return f"{_CORPORA}/{key}"


def _open(folder: Path) -> Stored:
    facts = read_object(folder / _FACTS)
    return Stored(dataset=Dataset.from_file(str(folder / _DATA)), digest=facts["digest"], dropped=facts["dropped"])


def as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """Consecutive rows as a slice, which `datasets` reads at once; other rows unchanged, which it reads one by one."""
    together = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows
