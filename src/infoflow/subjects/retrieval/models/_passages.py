"""`Passages`: a store of passages in Arrow, of any size; modified files are refused."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
from datasets import Dataset, concatenate_datasets

from infoflow.foundation import (
    UserError,
    as_written,
    atomic_folder,
    file_digest,
    hash64,
    is_unicode,
    json_fault,
    read_object,
)

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("entity", pa.string()),
        ("facts", pa.list_(pa.int64())),
    ]
)
_VERSION = 1
_BATCH = 4096
_DATA, ABOUT = "passages.arrow", "passages.json"
BUILD_AGAIN = "Build the index again: infoflow data index CORPUS --out FOLDER."

Row = Mapping[str, Any]  # `text`, and optionally `title`, `entity` and the numbers of the `facts` in it


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage."""

    id: int  # its position in the store
    title: str
    text: str
    entity: str
    facts: tuple[int, ...]


class Shard(NamedTuple):
    """A shard of a larger store: every `of`-th passage from `number` on; passage i has index `i // of` in it."""

    number: int  # from 0
    of: int
    total: int  # passages of all shards
    whole: str  # digest of the whole store

    def ids(self, local: np.ndarray) -> np.ndarray:
        """Ids in the whole store from ids in the shard; −1 is unchanged."""
        return np.where(local < 0, local, local * self.of + self.number)


@final
class Passages:
    """Passages by id, 0..n − 1.

    Create them with `from_rows`, `build` (directly on disk, for more than fits in memory) or `load`. Passages without
    text are left out (`num_empty`); repeated ones are kept and counted (`num_repeated`).
    """

    def __init__(
        self, dataset: Dataset, digest: str, num_empty: int, num_repeated: int, shard: Shard | None = None
    ) -> None:
        self.dataset = dataset
        self.digest = digest
        """Sixteen hex digits of the content."""
        self.num_empty, self.num_repeated = num_empty, num_repeated
        self.shard = shard
        """Which shard this is, or None; for a shard, counts are those of the whole store."""

    @classmethod
    def from_rows(cls, rows: Iterable[Row | str]) -> "Passages":
        """Passages in memory, from rows or plain texts.

        Raises:
            UserError: There are no rows, or none has text.
        """
        batches = _Batches(rows)
        table = pa.Table.from_batches(list(batches), schema=_SCHEMA)
        return cls(Dataset(table), *batches.about())

    @classmethod
    def build(cls, rows: Iterable[Row | str], folder: Path | str, shard: tuple[int, int] | None = None) -> "Passages":
        """Write passages to `folder` as they come, and open them there, memory-mapped.

        Args:
            rows: As in `from_rows`.
            folder: An existing store there is replaced.
            shard: (i, n): write only passages i, i + n, i + 2n, ...; `Passages.join` combines all n stores.

        Raises:
            UserError: As in `from_rows`; the shard is empty; the folder cannot be written.
        """
        batches = _Batches(rows, *(shard or (0, 1)))
        with atomic_folder(Path(folder)) as temporary:
            with pa.OSFile(str(temporary / _DATA), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            _write_about(temporary, *batches.about())
        return cls.load(folder)

    def save(self, folder: Path | str) -> None:
        """Write the store; an existing one is replaced.

        Raises:
            UserError: The folder cannot be written.
        """
        with atomic_folder(Path(folder)) as temporary:
            with pa.OSFile(str(temporary / _DATA), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
                rows = self.dataset.with_format("arrow")
                for start in range(0, len(self), _BATCH):
                    table: Any = rows[start : start + _BATCH]
                    ids = pa.array(range(start, start + len(table)), pa.int64())  # joined shards have other ids
                    writer.write_table(table.set_column(0, _SCHEMA.field("id"), ids))
            _write_about(temporary, self.digest, self.num_empty, self.num_repeated, self.shard)

    @classmethod
    def load(cls, folder: Path | str) -> "Passages":
        """The store in a folder, after a check of its files.

        Raises:
            UserError: There is no store, its version differs, or a file is missing or damaged.
        """
        folder = Path(folder)
        about = _read_about(folder)
        path = folder / _DATA
        if not path.is_file() or file_digest(path) != about["sha256"]:
            raise UserError(
                f"{path} is {'damaged: it is not what was written' if path.exists() else 'missing'}.\n{BUILD_AGAIN}"
            )
        return cls(Dataset.from_file(str(path)), about["digest"], about["empty"], about["repeated"], about["shard"])

    @classmethod
    def join(cls, shards: Sequence["Passages"]) -> "Passages":
        """The whole store from all its shards, in any order; nothing is copied.

        Raises:
            UserError: A store is not a shard, or a shard is missing, duplicate or from another store.
        """
        stores = in_order(shards)
        lengths = np.array([len(one) for one in stores])
        ids = np.arange(lengths.sum())
        places = np.concatenate([[0], lengths.cumsum()[:-1]])[ids % len(stores)] + ids // len(stores)
        dataset = concatenate_datasets([one.dataset for one in stores]).select(places)
        first = stores[0]
        assert first.shard is not None
        return cls(dataset, first.shard.whole, first.num_empty, first.num_repeated)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, id: int) -> Passage:
        if not 0 <= id < len(self):  # −1 means no passage, not the last one
            raise IndexError(f"passage {id} of {len(self)}")
        return _passage(int(id), self.dataset[int(id)])

    def __iter__(self) -> Iterator[Passage]:
        for id, row in enumerate(self.dataset):
            yield _passage(id, row)

    def texts(self, size: int = 1024) -> Iterator[str]:
        """Iterates over every text."""
        for start in range(0, len(self), size):
            yield from self.dataset[start : start + size]["text"]

    @cached_property
    def text_keys(self) -> np.ndarray:
        """A hash of each text, int64 (passage,): equal for exact duplicates."""
        return np.fromiter((_key(text) for text in self.texts()), dtype=np.int64, count=len(self))


def in_order(shards: Sequence[Passages]) -> list[Passages]:
    """All shards of one store, by number."""
    given = [one.shard for one in shards]
    parts = [shard for shard in given if shard is not None]
    if len(parts) != len(given) or not parts:
        raise UserError(
            f"Only shards of an index can be joined. Got {len(given) - len(parts)} of {len(given)} that are "
            "not shards.\n"
            "Name all n folders that infoflow data index CORPUS --shard i/n wrote."
        )
    if len({(shard.of, shard.total, shard.whole) for shard in parts}) > 1:
        raise UserError(
            "The shards belong to different indexes: other corpora, or another number of shards.\n"
            "Build all with the same command except for i: infoflow data index CORPUS --shard i/n."
        )
    numbers = sorted(shard.number for shard in parts)
    if numbers != list(range(parts[0].of)):
        raise UserError(
            f"Joining needs each of the shards 0..{parts[0].of - 1} once. Got {', '.join(map(str, numbers))}.\n"
            "Build the missing ones: infoflow data index CORPUS --shard i/n."
        )
    return [shards[[shard.number for shard in parts].index(number)] for number in numbers]


def _passage(id: int, row: Any) -> Passage:
    return Passage(id, row["title"], row["text"], row["entity"], tuple(row["facts"]))


def _key(text: str) -> int:
    return hash64("passage", text) >> 1


class _Batches:
    """Record batches of every `of`-th row from `number` on; all rows are counted and hashed as they pass."""

    def __init__(self, rows: Iterable[Row | str], number: int = 0, of: int = 1) -> None:
        self._rows = rows
        self._number, self._of = number, of
        self._hash, self._whole = hashlib.sha256(), hashlib.sha256()
        self._empty = self._repeated = self._count = 0
        self._seen: set[int] = set()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        kept = self._kept()
        while part := list(islice(kept, _BATCH)):
            self._whole.update(_bytes(part))
            own = [[row[0] // self._of, *row[1:]] for row in part if row[0] % self._of == self._number]
            if own:
                self._hash.update(_bytes(own))
                columns = [list(column) for column in zip(*own, strict=True)]
                yield pa.record_batch(columns, schema=_SCHEMA)
        if 0 < self._count <= self._number:
            raise UserError(
                f"Shard {self._number} of {self._of} has none of {self._count:,} passages.\nUse fewer shards."
            )
        if not self._count:
            raise UserError(
                f"An index needs at least one passage with text. Got none ({self._empty} without text).\n"
                "Use a corpus with text in it."
            )

    def about(self) -> tuple[str, int, int, Shard | None]:
        """Digest, number of rows without text, number of rows with repeated text, and the shard."""
        whole = self._whole.hexdigest()[:16]
        shard = Shard(self._number, self._of, self._count, whole) if self._of > 1 else None
        return self._hash.hexdigest()[:16], self._empty, self._repeated, shard

    def _kept(self) -> Iterator[list[Any]]:
        for number, row in enumerate(self._rows):
            fields = {"text": row} if isinstance(row, str) else row
            text = fields.get("text")
            if not isinstance(text, str):
                raise UserError(f"Passage {number} must have a text. Got {type(text).__name__}.")
            if any(not is_unicode(str(fields.get(name) or "")) for name in ("text", "title", "entity")):
                raise UserError(
                    f"Passage {number} contains half of a surrogate pair, which is not Unicode text.\n"
                    "Write the whole character, or remove it."
                )
            if not text.strip():
                self._empty += 1
                continue
            key = _key(text)
            self._repeated += key in self._seen
            self._seen.add(key)
            title, entity = (str(fields.get(name) or "") for name in ("title", "entity"))
            yield [self._count, title, text, entity, [int(fact) for fact in fields.get("facts") or ()]]
            self._count += 1


def _bytes(rows: list[list[Any]]) -> bytes:
    return json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _write_about(folder: Path, digest: str, num_empty: int, num_repeated: int, shard: Shard | None) -> None:
    about: dict[str, Any] = {"version": _VERSION, "digest": digest, "empty": num_empty, "repeated": num_repeated}
    about |= {} if shard is None else {"shard": shard._asdict()}
    about["sha256"] = file_digest(folder / _DATA)
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        raise UserError(
            f"{folder} has no passages: there is no {ABOUT}.\n"
            "Name a folder that infoflow data index wrote, or build one: infoflow data index CORPUS --out FOLDER."
        )
    try:
        about = read_object(path)
        if about["version"] != _VERSION:
            raise UserError(
                f"{folder} was written by another version of infoflow ({as_written(about['version'])}).\n{BUILD_AGAIN}"
            )
        kinds = {"digest": str, "sha256": str, "empty": int, "repeated": int}
        if all(isinstance(about[name], kind) for name, kind in kinds.items()):
            return {name: about[name] for name in kinds} | {"shard": _read_shard(about.get("shard"))}
        fault = "a field has the wrong type"
    except (ValueError, RecursionError) as error:
        fault = json_fault(error)
    except (KeyError, TypeError):
        fault = "a field is missing"
    raise UserError(f"{path} is damaged: {fault}.\n{BUILD_AGAIN}")


def _read_shard(given: Any) -> Shard | None:
    """A shard from its JSON form; raises a TypeError if the form is wrong."""
    if given is None:
        return None
    shard = Shard(**given)
    numbers = shard.number, shard.of, shard.total
    if not all(isinstance(number, int) for number in numbers) or not isinstance(shard.whole, str):
        raise TypeError
    if not 0 <= shard.number < min(shard.of, shard.total):
        raise TypeError
    return shard
