"""Location of a checkpoint: a local folder, or a revision on the hub that is fetched temporarily and in advance."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import ClassVar, final

from infoflow.foundation import UserError, digest, file_digest, patient_hub

from ._checkpoint_names import TRAINER_STATE, TrainerState, trainer_state

WEIGHTS = (".safetensors", ".bin")
BESIDE = (
    "config.json", "generation_config.json", "training.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model",
)  # fmt: skip
"""Files, apart from weights, that may affect measurements."""
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.safetensors", "rest.safetensors")
_FETCHED = ("*.json", "*.safetensors", "*.bin", "*.txt", "*.model", "*.jinja")
_NOT_FETCHED = ("*onnx*", "*optimizer*", "*training_args*", "*scheduler*", "*.msgpack", "*.h5", "coreml/*", "*/*")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """A file of weights."""

    name: str
    sha256: str
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder from `save_pretrained`; it has the members of a place on the hub."""

    folder: Path
    commit: ClassVar[str] = ""
    revision: ClassVar[str] = ""
    is_here: ClassVar[bool] = True

    def weight_files(self) -> tuple[StoredFile, ...]:
        return tuple(_stored(path, path.stat().st_size, path.stat().st_mtime_ns) for path in weight_paths(self.folder))

    def identity(self) -> str:
        others = [path for path in (self.folder / name for name in BESIDE) if path.is_file()]
        return _identity(
            self.weight_files(), [_stored(path, path.stat().st_size, path.stat().st_mtime_ns) for path in others]
        )

    def opened(self, keep: bool = False) -> AbstractContextManager[Path]:
        return nullcontext(self.folder)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class HubPlace:
    """A commit of a repository; branches move, commits do not."""

    repository: str
    commit: str  # its hash
    listed: tuple[StoredFile, ...]  # as listed by the hub
    beside: tuple[StoredFile, ...] = ()  # files named in `BESIDE`
    branch: str = ""  # name of the revision in the cache

    @property
    def revision(self) -> str:
        """The checkpoint's name on the hub."""
        return f"{self.repository}@{self.branch or self.commit}"

    @property
    def is_here(self) -> bool:
        """Whether nothing has to be fetched."""
        kept = snapshot_folder(self.repository, self.commit)
        return bool(self.listed) and all((kept / file.name).exists() for file in self.listed)

    def weight_files(self) -> tuple[StoredFile, ...]:
        """The weight files with their checksums, without a download; () if there are none."""
        return self.listed

    def identity(self) -> str:
        """Identity for results: weights, configuration and tokenizer, independent of the location."""
        return _identity(self.listed, self.beside)

    def opened(self, keep: bool = False) -> AbstractContextManager[Path]:
        """A context with the folder, fetched if necessary; fetched files are removed afterwards, unless `keep`."""
        return _Fetched(self, keep, _FETCHED)

    def state(self) -> TrainerState:
        """The record of the checkpoint's training, fetched on demand."""
        with _Fetched(self, False, (TRAINER_STATE,)) as folder:
            return trainer_state(folder)


Place = FolderPlace | HubPlace  # location of one checkpoint's files


def _identity(weights: Iterable[StoredFile], beside: Iterable[StoredFile]) -> str:
    return digest([[(file.name, file.sha256) for file in files] for files in (weights, beside)])


@lru_cache(maxsize=4096)
def _stored(path: Path, size: int, changed: int) -> StoredFile:
    """Read once per process, unless the file has `changed`."""
    return StoredFile(name=path.name, sha256=file_digest(path), bytes=size)


def weight_paths(folder: Path) -> list[Path]:
    """The weight files in a folder: safetensors if there are any, since they are loaded first."""
    names = sorted(path.name for path in folder.glob("*") if path.is_file())
    return [folder / name for name in weight_names(names)]


def weight_names(names: list[str]) -> list[str]:
    """The names of weight files that loading would read."""
    found = [name for name in names if name.endswith(WEIGHTS) and name not in _NO_WEIGHTS and "/" not in name]
    return [name for name in found if name.endswith(".safetensors")] or found


class _Fetched(AbstractContextManager[Path]):
    def __init__(self, place: HubPlace, keep: bool, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        self._repository, self._commit, self._branch, self._keep = place.repository, place.commit, place.branch, keep

    def __enter__(self) -> Path:
        self._snapshots = snapshot_folder(self._repository, self._commit).parent
        self._links, self._blobs = _files(self._snapshots / self._commit), _Before.enter(self._snapshots)
        try:
            folder = Path(_download(self._repository, self._commit, self._patterns))
        except BaseException:
            self.__exit__()
            raise
        if self._keep and self._branch:  # a commit fetched by its hash is found again only by its hash
            name = self._snapshots.parent / "refs" / self._branch
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(self._commit, encoding="utf-8")
        return folder

    def __exit__(self, *failure: object) -> None:
        """Keeps files that existed before, and those of other revisions that are kept or open."""
        alone = _Before.leave(self._snapshots)
        if self._keep:
            return
        own = _files(self._snapshots / self._commit) - self._links
        blobs = {path.resolve() for path in own if path.is_symlink()}
        for path in own:
            path.unlink(missing_ok=True)
        used = {path.resolve() for path in _files(self._snapshots)}
        # While another revision is being fetched, files without a link are parts of it.
        for path in (_files(self._snapshots.parent / "blobs") if alone else blobs) - self._blobs:
            if path.resolve() not in used:
                path.unlink(missing_ok=True)
        for path in (self._snapshots / self._commit, self._snapshots):
            if path.is_dir() and not any(path.iterdir()):
                os.rmdir(path)  # noqa: PTH106 (refuses a folder that has something in it by now)


class _Before:
    """Content of a repository's cache before the first open revision was fetched."""

    _lock: ClassVar[Lock] = Lock()
    _open: ClassVar[dict[Path, tuple[int, set[Path]]]] = {}

    @classmethod
    def enter(cls, snapshots: Path) -> set[Path]:
        with cls._lock:
            count, blobs = cls._open.get(snapshots, (0, set[Path]()))
            blobs = blobs if count else _files(snapshots.parent / "blobs")
            cls._open[snapshots] = count + 1, blobs
            return blobs

    @classmethod
    def leave(cls, snapshots: Path) -> bool:
        """Close a revision; return whether it was the last open one."""
        with cls._lock:
            count, blobs = cls._open.pop(snapshots)
            if count > 1:
                cls._open[snapshots] = count - 1, blobs
            return count == 1


def _download(repository: str, commit: str, patterns: tuple[str, ...]) -> str:
    from huggingface_hub import constants, snapshot_download

    try:
        with patient_hub():
            return snapshot_download(
                repository,
                revision=commit,
                allow_patterns=list(patterns),
                ignore_patterns=list(_NOT_FETCHED),
                local_files_only=constants.HF_HUB_OFFLINE,
            )
    except Exception as error:
        raise UserError(
            f"{repository} at {commit[:12]} could not be fetched: {str(error).splitlines()[0][:200]}\n"
            "Finished measurements are kept; run the same command again."
        ) from error


def snapshot_folder(repository: str, commit: str) -> Path:
    """Cache folder of a commit, whether or not it exists."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    name = repo_folder_name(repo_id=repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / name / "snapshots" / commit


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_symlink() or path.is_file()} if folder.is_dir() else set()


class Ahead:
    """Provides the folders of places in order; the next one to be fetched is fetched in the background.

    At most two folders exist at a time: leave `opened` before requesting the next one. Close the object at the end.
    """

    def __init__(self, keep: bool = False) -> None:
        self._waiting, self._keep = list[Place](), keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fetch")
        self._next: tuple[Place, AbstractContextManager[Path], Future[Path]] | None = None

    def expect(self, places: Sequence[Place]) -> None:
        """Announce the places that will be opened, in this order."""
        self._waiting = list(places)

    @contextmanager
    def opened(self, place: Place) -> Iterator[Path]:
        """The place's folder; meanwhile the next one is fetched."""
        opened, folder = self._taken(place)
        try:
            if self._next is None and self._waiting and not self._waiting[0].is_here:
                following = self._waiting[0]
                fetched = following.opened(self._keep)
                self._next = following, fetched, self._thread.submit(fetched.__enter__)
            yield folder
        finally:
            opened.__exit__(None, None, None)

    def close(self) -> None:
        """Remove fetched files that were never used."""
        if self._next:
            _, opened, folder = self._next
            self._next = None
            if folder.exception() is None:
                opened.__exit__(None, None, None)
        self._thread.shutdown()

    def _taken(self, place: Place) -> tuple[AbstractContextManager[Path], Path]:
        if place in self._waiting:
            del self._waiting[: self._waiting.index(place) + 1]
        if self._next and self._next[0] == place:
            _, opened, folder = self._next
            self._next = None
            return opened, folder.result()
        opened = place.opened(self._keep)
        return opened, opened.__enter__()
