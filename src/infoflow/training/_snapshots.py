"""Snapshots: weights and configuration of chosen updates, kept for measuring. Nothing continues from them.

```
snapshots/step-00000500/   config.json, model.safetensors, tokenizer, target_tokenizer/, rest.safetensors: as in
                           checkpoints, without a training state
snapshots/manifest.json    the updates that are wanted, and what there is: a folder without entry is no snapshot
```

Files that are equal in several snapshots are one file with several names where the file system has hard links.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from infoflow.foundation import atomic_folder, atomic_write, file_digest, read_object

SNAPSHOTS = "snapshots"
"""Folder of a training's snapshots."""
Dtype = Literal["float32", "bfloat16"]
_MANIFEST = "manifest.json"
_WEIGHTS = ".safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Manifest entry of a snapshot."""

    update: int
    tokens: int  # used in the loss so far
    source_tokens: int
    learning_rate: float  # of this update; 0 before the first
    loss: float | None  # of this update's batch, with the weights before it, in nats per item; None before the first
    dtype: Dtype  # of the stored weights
    files: Mapping[str, str]  # SHA-256 of each file

    @property
    def weights(self) -> dict[str, str]:
        """SHA-256 of the files that hold weights."""
        return {name: value for name, value in self.files.items() if is_weights(name)}


class Snapshots:
    """The snapshots of one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._digests: dict[tuple[str, int, int, int], str] = {}  # of files as they were when they were read

    def path(self, update: int) -> Path:
        """Path of an update's snapshot."""
        return self.folder / f"step-{update:08}"

    def entries(self) -> dict[int, Snapshot]:
        """The manifest's entries by update; empty if it is unreadable."""
        return self._read()[1]

    def kept(self) -> list[int]:
        """Updates whose snapshot exists, byte for byte as written."""
        return [update for update, entry in self.entries().items() if self.is_intact(entry)]

    def is_intact(self, entry: Snapshot) -> bool:
        """Whether the files match the entry."""
        return all(self._digest(self.path(entry.update) / name) == value for name, value in entry.files.items())

    def add(self, entry: Snapshot) -> None:
        """Add an entry to the manifest, replacing an earlier one of that update."""
        schedule, entries = self._read()
        self._write(schedule, {**entries, entry.update: entry})

    def expect(self, schedule: Iterable[int]) -> None:
        """Record the scheduled updates."""
        before, entries = self._read()
        if before != sorted(schedule):
            self._write(sorted(schedule), entries)

    def adopt(self, other: "Snapshots") -> None:
        """Replace the snapshots here by those of `other`, a training with the same weights."""
        for update in other.kept():
            entry = other.entries()[update]
            with atomic_folder(self.path(update)) as folder:
                for name in entry.files:
                    link(other.path(update) / name, folder / name)
            self.add(entry)

    def mend(self, update: int, model: Path) -> bool:
        """Restore a damaged snapshot from the training's final `model` and the other snapshots.

        Returns whether that was possible. Weights of the last update are those of the model.
        """
        entry = self.entries().get(update)
        if entry is None:
            return False
        places = [self.path(update), model, *(self.path(other) for other in self.entries())]
        found = {
            name: next((place / name for place in places if self._digest(place / name) == value), None)
            for name, value in entry.files.items()
        }
        if None in found.values():
            return False
        with atomic_folder(self.path(update)) as folder:
            for name, source in found.items():
                if source is not None:
                    link(source, folder / name)
        return True

    def share_with(self, model: Path, update: int) -> None:
        """If the weights of `update` equal those of the final `model`, make them one file with two names."""
        entry = self.entries().get(update)
        for name, value in (entry.weights if entry else {}).items():
            source, target = model / name, self.path(update) / name
            if not target.exists() or self._digest(source) != value or source.samefile(target):
                continue
            temporary = target.with_name(f".{name}.{os.getpid()}.partial")
            with suppress(OSError):  # no hard links there
                os.link(source, temporary)
                temporary.replace(target)

    def _read(self) -> tuple[list[int], dict[int, Snapshot]]:
        """The scheduled and the existing snapshots."""
        try:
            facts = read_object(self.folder / _MANIFEST)
            found = sorted((Snapshot(**fields) for fields in facts["snapshots"]), key=lambda one: one.update)
            return list(facts["schedule"]), {one.update: one for one in found}
        except (OSError, ValueError, KeyError, TypeError):
            return [], {}

    def _write(self, schedule: Sequence[int], entries: Mapping[int, Snapshot]) -> None:
        listed: list[dict[str, Any]] = [asdict(entries[update]) for update in sorted(entries)]
        with atomic_write(self.folder / _MANIFEST) as temporary:
            facts = {"schedule": list(schedule), "snapshots": listed}
            temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    def _digest(self, file: Path) -> str:
        """SHA-256 of a file, or "" if it does not exist; recomputed when the file changes."""
        try:
            seen = file.stat()
            key = str(file), seen.st_size, seen.st_mtime_ns, seen.st_ino
            if key not in self._digests:
                self._digests[key] = file_digest(file)
            return self._digests[key]
        except OSError:
            return ""


def is_weights(name: str) -> bool:
    """Whether the file of a model's folder holds weights."""
    return name.endswith(_WEIGHTS)


def link(source: Path, target: Path) -> None:
    """A second name for a file, or a copy where the file system has none; an existing `target` is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
