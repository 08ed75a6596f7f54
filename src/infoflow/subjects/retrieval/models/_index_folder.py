"""An index on disk, whole or in shards, with checks of its files, passages, encoder and recall."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import torch.distributed as dist
from torch import Tensor

from infoflow.corpus import Vocabulary, tokenizer_digest
from infoflow.foundation import UserError, as_written, atomic_folder, file_digest, read_object, stream
from infoflow.models import Numbers

from ._bm25 import LexicalIndex
from ._dense_index import HNSW, IVFPQ, NEAREST, VECTORS, Approximate, DenseIndex
from ._found import Excluded, Found, Searches, best, check_search, recall_at
from ._passages import BUILD_AGAIN, Passages, Shard
from ._retriever import Tower

NUM_QUERIES = 200  # number of queries for the reported recall


class SearchRecall(NamedTuple):
    """Mean share of the k best passages of an exact search that are also among the k of the approximate search."""

    k: int
    num_queries: int
    queries: str  # kind of queries: questions, passages, or vectors of passages
    recall: float


def search_recall(index: DenseIndex, queries: Numbers, k: int = 10, what: str = "questions") -> SearchRecall:
    """recall@k of an index against exact search of its vectors; with fewer than k passages, all of them count.

    `what` names the kind of queries, and is reported with the number.
    """
    found = index.search(queries, k).ids
    if not len(found):
        raise UserError("Recall needs at least one query. Got none.")
    exact = DenseIndex(index.vectors).search(queries, k).ids
    shares = recall_at(found, [row[row >= 0].tolist() for row in exact], k)
    return SearchRecall(k, len(found), what, float(shares.mean()))


# A digest of everything that determines a passage's vector, apart from the passage itself.

_SETTINGS = ("hidden_act", "layer_norm_eps", "num_attention_heads")  # settings that an encoder's weights do not show


def tower_digest(tower: Tower, tokenizer: Any) -> str:
    """Sixteen hex digits of everything that maps a text to a vector: weights, settings, pooling and tokenizer."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    settings = [getattr(tower.encoder.config, name) for name in _SETTINGS]
    special = [vocabulary.start, vocabulary.end, vocabulary.pad, tokenizer.unk_token_id, vocabulary.special]
    about = [tower.pooling, settings, tokenizer_digest(tokenizer), special]
    hashed = hashlib.sha256(json.dumps(about, default=str).encode())
    for name, tensor in tower.state_dict().items():
        hashed.update(name.encode())
        hashed.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return hashed.hexdigest()[:16]


# An index on disk, with checks of every file and of the passages and encoder it was made from.

_VERSION = 2
_OLDEST = {"dense": 2, "lexical": 1}  # before version 2, the digest of a dense encoder covered only its weights
ABOUT = "index.json"
_ENCODED_BY = "another passage encoder (weights, settings, pooling and tokenizer)"
_APPROXIMATE = {"hnsw": HNSW, "ivf": IVFPQ}

Index = DenseIndex | LexicalIndex


class StoredIndex(NamedTuple):
    """An index on disk."""

    index: Index
    encoder: str  # digest of the passage encoder, or name of the terms
    recall: SearchRecall | None = None  # of an approximate index


class _About(NamedTuple):
    """The description of an index."""

    kind: str
    store: str
    encoder: str
    files: dict[str, str]
    approximate: Approximate | None
    recall: SearchRecall | None


def save_index(
    index: Index, passages: Passages, encoder: str, folder: Path | str, recall: SearchRecall | None = None
) -> None:
    """Write an index of `passages` into a folder of its own, replacing an existing index.

    `encoder` is the digest of the passage encoder, or the name of the terms. If `recall` is not given, the recall of an
    approximate index is measured on 200 of its own vectors.
    """
    if len(index) != len(passages):
        raise UserError(f"The index must have as many passages as the store, {len(passages):,}. Got {len(index):,}.")
    about: dict[str, Any] = {"version": _VERSION, "kind": "lexical", "metric": "bm25", "count": len(index)}
    if isinstance(index, DenseIndex):
        about |= {"kind": "dense", "metric": "inner product", **_of_search(index, recall)}
    with atomic_folder(Path(folder)) as temporary:
        index.write(temporary)
        files = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        about |= {"store": passages.digest, "encoder": encoder, "files": files}
        (temporary / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _of_search(index: DenseIndex, recall: SearchRecall | None) -> dict[str, Any]:
    """How a dense index is searched; empty if exact."""
    if isinstance(index.backend, str):
        return {}
    if recall is None:
        size = min(NUM_QUERIES, len(index))
        rows = stream("search-recall").choice(len(index), size, replace=False)
        recall = search_recall(index, index.vectors[rows], what="vectors of passages")
    return {"approximate": {"kind": index.backend.name, **asdict(index.backend)}, "recall": recall._asdict()}


def load_index(folder: Path | str, passages: Passages, encoder: str | None = None) -> StoredIndex:
    """The index in a folder, checked to be complete and made from these passages by this encoder (None: any)."""
    folder = Path(folder)
    about = _read(folder)
    _check_source(folder, "other passages", about.store, passages.digest)
    if encoder is not None:
        what = _ENCODED_BY if about.kind == "dense" else "other terms, from another tokenizer or version of infoflow"
        _check_source(folder, what, about.encoder, encoder)
    for name, wanted in about.files.items():
        path = folder / Path(name).name
        if not path.is_file() or file_digest(path) != wanted:
            raise UserError(
                f"{path} is {'damaged: it is not what was written' if path.exists() else 'missing'}.\n{BUILD_AGAIN}"
            )
    dense = about.kind == "dense"
    of_dense = {VECTORS} if about.approximate is None else {VECTORS, NEAREST}
    if dense != (set(about.files) == of_dense):
        raise UserError(f"{folder / ABOUT} is damaged: its kind does not match its files.\n{BUILD_AGAIN}")
    index: Index = DenseIndex.read(folder, about.approximate or "torch") if dense else LexicalIndex.read(folder)
    return StoredIndex(index, about.encoder, about.recall)


def index_kind(folder: Path | str) -> str:
    """ "dense" or "lexical", from the description of an index."""
    return _read(Path(folder)).kind


def _check_source(folder: Path, what: str, made: str, given: str) -> None:
    if made != given:
        raise UserError(
            f"The index in {folder} was made from {what}: its digest must be {given}. Got {made}.\n"
            "Build it again: infoflow data index CORPUS --out FOLDER."
        )


def _read(folder: Path) -> _About:
    path = folder / ABOUT
    if not path.is_file():
        raise UserError(f"{folder} has no index: there is no {ABOUT}.\nName a folder that infoflow data index wrote.")
    damaged = UserError(f"{path} is damaged, or from another version of infoflow.\n{BUILD_AGAIN}")
    try:
        about = read_object(path)
        kind, version = about["kind"], about["version"]
        oldest = _OLDEST[kind]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    if not isinstance(version, int) or not oldest <= version <= _VERSION:
        raise UserError(
            f"The index in {folder} was written by another version of infoflow, in layout {as_written(version)}; this "
            f"one reads {oldest} to {_VERSION} of a {kind} index.\n{BUILD_AGAIN}"
        )
    try:
        return _checked(about)
    except (KeyError, TypeError, ValueError, AttributeError, UserError):
        raise damaged from None


def _checked(about: dict[str, Any]) -> _About:
    store, encoder, files = about["store"], about["encoder"], about["files"]
    named = [store, encoder, *files, *files.values()]
    if not files or not isinstance(about["count"], int) or not all(isinstance(name, str) for name in named):
        raise ValueError("an entry of the wrong type")
    if "approximate" not in about:
        return _About(about["kind"], store, encoder, files, None, None)
    settings = dict(about["approximate"])
    approximate = _APPROXIMATE[settings.pop("kind")](**settings)
    recall = SearchRecall(**about["recall"])
    kinds = {"k": int, "num_queries": int, "queries": str, "recall": float}
    if not all(isinstance(getattr(recall, name), kind) for name, kind in kinds.items()):
        raise ValueError("an entry of the wrong type")
    return _About(about["kind"], store, encoder, files, approximate, recall)


# Shards of an index in one process: the best of each shard are merged.


@final
class ShardedIndex:
    """Indexes of all shards of a store, with exactly the results and scores of an index of the whole store.

    This holds for exact indexes: dense ones, and lexical ones with the statistics of all passages.
    """

    def __init__(self, shards: Sequence[Searches]) -> None:
        """Shard i of n has the passages i, i + n, i + 2n, ..."""
        if not shards:
            raise UserError("A sharded index needs at least one shard. Got none.")
        self.shards = list(shards)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query, as in each shard's own search."""
        excluded, of = check_search(k, len(queries), exclude), len(self.shards)
        return merged(
            [search_shard(one, number, of, queries, k, excluded) for number, one in enumerate(self.shards)], k
        )


def search_shard(shard: Searches, number: int, of: int, queries: Any, k: int, excluded: Sequence[set[int]]) -> Found:
    """Results of one shard, with ids of the whole store."""
    own = [{id // of for id in out if id % of == number} for out in excluded]
    ids, scores = shard.search(queries, k, own)
    return Found(np.where(ids < 0, ids, ids * of + number), scores)


def merged(found: Sequence[Found], k: int) -> Found:
    """The k best results of all shards for each query."""
    ids, scores = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    rows = [best(*row, k, set()) for row in zip(ids, scores, strict=True)]
    return Found.stacked(rows, k, scores.dtype)


# Shards of an index over the processes of a group: every query goes to all of them.

T = TypeVar("T")


@final
class GroupIndex:
    """An index with one shard in each process of a group (gloo), and the results of an index of the whole store.

    Queries are gathered, each process searches its shard for all of them, and the results are gathered and merged in
    the requesting process, as in Atlas. All processes must search at the same time, each with its own queries or none.
    If one raises an error, all do.
    """

    def __init__(self, index: Searches, shard: Shard, group: Any = None) -> None:
        """
        Args:
            index: Index of this process's shard.
            shard: Number of this shard (`Passages.shard`).
            group: None: all processes; join them first (`infoflow.flow.processes`).

        Raises:
            UserError: There is no process group, or its processes do not hold each shard of one store exactly once.
        """
        if not (dist.is_available() and dist.is_initialized()):
            raise UserError(
                "A GroupIndex needs a process group. There is none.\n"
                "Start the processes with torchrun, and call infoflow.flow.processes() first."
            )
        self.index, self.shard, self._group = index, shard, group
        held = self._exchange(shard)
        whole = {(one.of, one.total, one.whole) for one in held}
        if len(whole) > 1 or sorted(one.number for one in held) != list(range(shard.of)):
            given = ", ".join(f"{one.number} of {one.of}" for one in held)
            raise UserError(
                f"The processes of a group must hold all shards of one store, each once. Got {given} from "
                f"{len({one.whole for one in held})} stores.\nStart as many processes as there are shards."
            )

    def __len__(self) -> int:
        return self.shard.total

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each of this process's queries, with ids of the whole store.

        Args:
            queries: Input of the shard's index: vectors, or terms.
            k: Number of results, the same in all processes.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: As in the index's own search, in any process; or the processes use different k.
        """
        here = queries.detach().cpu() if isinstance(queries, Tensor) else queries
        checked = self._all(lambda: (here, k, check_search(k, len(here), exclude)))
        if len({k for _, k, _ in checked}) > 1:
            raise UserError(f"All processes must request the same k. Got {', '.join(str(k) for _, k, _ in checked)}.")
        number, of = self.shard.number, self.shard.of
        found = self._all(lambda: [search_shard(self.index, number, of, *one) for one in checked])
        rank = dist.get_rank(self._group)
        return merged([answers[rank] for answers in found], k)

    def _all(self, make: Callable[[], T]) -> list[T]:
        """The values made by each process, in order. If one fails, all raise its error, so that none waits forever."""
        try:
            made: T | str = make()
        except UserError as error:
            made = str(error)
        gathered = self._exchange(made)
        for one in gathered:
            if isinstance(one, str):
                raise UserError(one)
        return gathered

    def _exchange(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(values, value, group=self._group)
        return values
