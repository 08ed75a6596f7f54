"""Snapshots: weights of chosen updates, which are kept for measuring and do not affect the training."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file

from infoflow import foundation
from infoflow._transformers import PreTrainedModel
from infoflow.models import save_model, save_weights

from ._checkpoint import Exported, save_rest
from ._config import TrainConfig

# Snapshots: weights and configuration of chosen updates, kept for measuring. Training never continues from them.
#
# ```
# snapshots/step-00000500/   config.json, model.safetensors, tokenizers, README.md, rest.safetensors: as in checkpoints,
#                            without a training state
# snapshots/manifest.json    the scheduled updates and the snapshots; a folder without an entry is not a snapshot
# ```
#
# Where the file system has hard links, files that are equal in several snapshots are one file with several names.

SNAPSHOTS = "snapshots"
"""Folder of a training's snapshots."""
Dtype = Literal["float32", "bfloat16"]
_MANIFEST = "manifest.json"
_WEIGHTS = ".safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    update: int
    tokens: int  # tokens used in the loss so far
    source_tokens: int
    learning_rate: float  # of this update; 0 before the first
    loss: float | None  # of this update's batch, with the weights before it, in nats per item; None before the first
    dtype: Dtype  # of the stored weights
    files: Mapping[str, str]  # SHA-256 of each file

    @property
    def weights(self) -> dict[str, str]:
        return {name: value for name, value in self.files.items() if is_weights(name)}


class Snapshots:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._digests: dict[tuple[str, int, int, int], str] = {}  # by name and status of a file

    def path(self, update: int) -> Path:
        return self.folder / f"step-{update:08}"

    def entries(self) -> dict[int, Snapshot]:
        """The manifest's entries by update; empty if the manifest is unreadable."""
        return self._read()[1]

    def kept(self) -> list[int]:
        """Updates whose snapshot still exists byte for byte as it was written."""
        return [update for update, entry in self.entries().items() if self.is_intact(entry)]

    def is_intact(self, entry: Snapshot) -> bool:
        return all(self._digest(self.path(entry.update) / name) == value for name, value in entry.files.items())

    def add(self, entry: Snapshot) -> None:
        """Add an entry to the manifest, replacing any earlier entry of the same update."""
        schedule, entries = self._read()
        self._write(schedule, {**entries, entry.update: entry})

    def expect(self, schedule: Iterable[int]) -> None:
        before, entries = self._read()
        if before != sorted(schedule):
            self._write(sorted(schedule), entries)

    def adopt(self, other: "Snapshots") -> None:
        """Replace these snapshots with those of `other`, from a training run with the same weights."""
        for update in other.kept():
            entry = other.entries()[update]
            with foundation.atomic_folder(self.path(update)) as folder:
                for name in entry.files:
                    link(other.path(update) / name, folder / name)
            self.add(entry)

    def mend(self, update: int, model: Path) -> bool:
        """Restore a damaged snapshot from the final `model` and the other snapshots, and return whether that worked.

        The final model has the weights of the last update.
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
        with foundation.atomic_folder(self.path(update)) as folder:
            for name, source in found.items():
                if source is not None:
                    link(source, folder / name)
        return True

    def share_with(self, model: Path, update: int) -> None:
        """If the weights of `update` equal those of the final `model`, store them as one file with two names."""
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
        try:
            facts = foundation.read_object(self.folder / _MANIFEST)
            found = sorted((Snapshot(**fields) for fields in facts["snapshots"]), key=lambda one: one.update)
            return list(facts["schedule"]), {one.update: one for one in found}
        except (OSError, ValueError, KeyError, TypeError):
            return [], {}

    def _write(self, schedule: Sequence[int], entries: Mapping[int, Snapshot]) -> None:
        listed: list[dict[str, Any]] = [asdict(entries[update]) for update in sorted(entries)]
        with foundation.atomic_write(self.folder / _MANIFEST) as temporary:
            facts = {"schedule": list(schedule), "snapshots": listed}
            temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    def _digest(self, file: Path) -> str:
        """SHA-256 of a file, or "" if it does not exist; recomputed when the file changes."""
        try:
            seen = file.stat()
            key = str(file), seen.st_size, seen.st_mtime_ns, seen.st_ino
            if key not in self._digests:
                self._digests[key] = foundation.file_digest(file)
            return self._digests[key]
        except OSError:
            return ""


def is_weights(name: str) -> bool:
    return name.endswith(_WEIGHTS)


def link(source: Path, target: Path) -> None:
    """Make a second name for a file, or a copy where the file system has no links; an existing `target` is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotPlan:
    """Which updates of a training are kept, and in which precision.

    `proofs` are the SHA-256 of weights, by update and file name. The training must reproduce these weights, even for
    updates that it does not keep.
    """

    steps: Callable[[TrainConfig], Sequence[int]]  # the updates to keep, for the training with its actual length
    dtype: Dtype = "float32"  # of the kept weights, except that the first and the last stay float32
    proofs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def dtype_at(self, update: int, updates: int) -> Dtype:
        """Precision of an update's stored weights; float32 for the first and last, where rounding matters most."""
        return "float32" if update in (0, updates) else self.dtype


class SnapshotWriter:
    """Writes the snapshots of one training run, without using random numbers or changing module or gradients."""

    def __init__(
        self,
        plan: SnapshotPlan,
        folder: Path,
        config: TrainConfig,
        exported: Exported,
        tokenizers: tuple[Any, Any] = (None, None),
        card: Mapping[str, Any] | None = None,
    ) -> None:
        self._plan, self._updates, self._card = plan, config.updates, card or {}
        self._exported, self._tokenizers = exported, tokenizers
        self._kept = Snapshots(folder)
        self._steps = set(plan.steps(config))

    def open(self) -> None:
        """Remove partial files of a killed process, and record the schedule."""
        foundation.sweep_partial(self._kept.folder)
        self._kept.expect(self._steps)

    def wants(self, update: int) -> bool:
        return update in self._steps or update in self._plan.proofs

    def write(self, module: PreTrainedModel, update: int, **facts: Any) -> None:
        """Store the weights after `update`; `facts` are the other fields of `Snapshot`."""
        dtype = self._plan.dtype_at(update, self._updates)
        if update not in self._steps:
            name = {"prefix": f".compared.{os.getpid()}-", "suffix": ".partial"}  # after a kill, it is removed later
            with TemporaryDirectory(dir=self._kept.folder, **name) as folder:
                self._compare(update, dtype, self._weights(module, Path(folder), dtype))
            return
        before = self._kept.entries().get(update)
        if before is not None and not self._kept.is_intact(before):
            foundation.current_display().note(f"{self._kept.path(update)} was damaged and is written again.")
        with foundation.atomic_folder(self._kept.path(update)) as folder:
            weights = self._weights(module, folder, dtype)
            self._compare(update, dtype, weights)
            files = weights | self._others(module, folder, update, weights)
        self._kept.add(Snapshot(update=update, dtype=dtype, files=files, **facts))

    def end(self, model: Path) -> None:
        """Link the last snapshot's weights to those of the final `model`."""
        self._kept.share_with(model, self._updates)

    def _weights(self, module: PreTrainedModel, folder: Path, dtype: Dtype) -> dict[str, str]:
        """Write the weights and the configuration, and return the SHA-256 of the weights."""
        part = self._exported(module)
        save_weights(part, folder)
        save_rest(module, part, folder)
        files = sorted(folder.glob("*.safetensors"))
        if dtype == "bfloat16":
            for file in files:
                tensors = load_file(file)
                rounded = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in tensors.items()}
                save_file(rounded, file, metadata={"format": "pt"})
        return {file.name: foundation.file_digest(file) for file in files}

    def _compare(self, update: int, dtype: Dtype, found: Mapping[str, str]) -> None:
        stored = self._kept.entries().get(update)
        for known in (self._plan.proofs.get(update), stored.weights if stored and stored.dtype == dtype else None):
            differing = [name for name in known or {} if found.get(name) != (known or {})[name]]
            if differing:
                name = differing[0]
                raise foundation.UserError(
                    f"Update {update} was not reproduced (sha256 of {name}: {found.get(name, 'none')[:16]}, before "
                    f"{(known or {})[name][:16]}); the run is not deterministic on this machine.\nContinue it on the "
                    f"machine and with the versions that started it, or train again in another output folder."
                )

    def _others(self, module: PreTrainedModel, folder: Path, update: int, weights: Mapping[str, str]) -> dict[str, str]:
        """Add tokenizers and card, linked to an earlier snapshot's if equal; returns the SHA-256 of all but weights."""
        shared = self._shared(update)
        if not shared:
            save_model(self._exported(module), folder, *self._tokenizers, self._card, weights=False)
        for name, (source, value) in shared.items():
            target = folder / name
            known = weights.get(name) or (foundation.file_digest(target) if target.exists() else "")
            if known == value or not (known or is_weights(name)):
                link(source, target)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not is_weights(path.name))
        return {path.relative_to(folder).as_posix(): foundation.file_digest(path) for path in files}

    def _shared(self, update: int) -> dict[str, tuple[Path, str]]:
        """Files of the first complete snapshot, with their SHA-256."""
        others = (entry for entry in self._kept.entries().values() if entry.update != update)
        first = next((entry for entry in others if self._kept.is_intact(entry)), None)
        if first is None:
            return {}
        return {name: (self._kept.path(first.update) / name, value) for name, value in first.files.items()}
