"""Writes snapshots during training without affecting it, and compares repeated updates."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from infoflow.foundation import UserError, atomic_folder, current_display, file_digest, sweep_partial

from ._checkpoint import Exported, save_model, save_rest, save_tokenizers
from ._config import TrainConfig
from ._snapshots import Dtype, Snapshot, Snapshots, is_weights, link


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotPlan:
    """Which updates of a training are kept, and in which precision.

    `proofs` are SHA-256 of weights, by update and file name, that this training must reproduce, kept or not.
    """

    steps: Callable[[TrainConfig], Sequence[int]]  # of the training with its actual length
    dtype: Dtype = "float32"  # of the kept weights; the first and the last stay float32
    proofs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def dtype_at(self, update: int, updates: int) -> Dtype:
        """Precision of an update's stored weights; rounding would hide the first changes and affect the result."""
        return "float32" if update in (0, updates) else self.dtype


class SnapshotWriter:
    """Writes the snapshots of one training. It uses no randomness, and does not change module or gradients."""

    def __init__(
        self,
        plan: SnapshotPlan,
        folder: Path,
        config: TrainConfig,
        exported: Exported,
        tokenizers: tuple[Any, Any] = (None, None),
    ) -> None:
        self._plan, self._updates = plan, config.updates
        self._exported, self._tokenizers = exported, tokenizers
        self._kept = Snapshots(folder)
        self._steps = set(plan.steps(config))

    def open(self) -> None:
        """Remove partial files of a killed process, and record the schedule."""
        sweep_partial(self._kept.folder)
        self._kept.expect(self._steps)

    def wants(self, update: int) -> bool:
        """Whether the weights after this update are kept or compared."""
        return update in self._steps or update in self._plan.proofs

    def write(self, module: PreTrainedModel, update: int, **facts: Any) -> None:
        """Keep the weights after `update`; `facts` are the other fields of `Snapshot`.

        Raises:
            UserError: They differ from the earlier weights of this update.
        """
        dtype = self._plan.dtype_at(update, self._updates)
        if update not in self._steps:
            name = {"prefix": f".compared.{os.getpid()}-", "suffix": ".partial"}  # removed later after a kill
            with TemporaryDirectory(dir=self._kept.folder, **name) as folder:
                self._compare(update, dtype, self._weights(module, Path(folder), dtype))
            return
        before = self._kept.entries().get(update)
        if before is not None and not self._kept.is_intact(before):
            current_display().note(f"{self._kept.path(update)} was damaged and is written again.")
        with atomic_folder(self._kept.path(update)) as folder:
            weights = self._weights(module, folder, dtype)
            self._compare(update, dtype, weights)
            files = weights | self._others(folder, update, weights)
        self._kept.add(Snapshot(update=update, dtype=dtype, files=files, **facts))

    def end(self, model: Path) -> None:
        """Links the last snapshot's weights to those of the final `model`."""
        self._kept.share_with(model, self._updates)

    def _weights(self, module: PreTrainedModel, folder: Path, dtype: Dtype) -> dict[str, str]:
        """Write the weights and the configuration; SHA-256 of the former."""
        part = self._exported(module)
        save_model(part, folder)
        save_rest(module, part, folder)
        files = sorted(folder.glob("*.safetensors"))
        if dtype == "bfloat16":
            for file in files:
                _round(file)
        return {file.name: file_digest(file) for file in files}

    def _compare(self, update: int, dtype: Dtype, found: Mapping[str, str]) -> None:
        stored = self._kept.entries().get(update)
        for known in (self._plan.proofs.get(update), stored.weights if stored and stored.dtype == dtype else None):
            differing = [name for name in known or {} if found.get(name) != (known or {})[name]]
            if differing:
                name = differing[0]
                raise UserError(
                    f"Update {update} was not reproduced (sha256 of {name}: {found.get(name, 'none')[:16]}, before "
                    f"{(known or {})[name][:16]}); the run is not deterministic on this machine.\nContinue it on the "
                    f"machine and with the versions that started it, or train again in another output folder."
                )

    def _others(self, folder: Path, update: int, weights: Mapping[str, str]) -> dict[str, str]:
        """Add the tokenizers, linked to those of an earlier snapshot as all files that are equal; SHA-256 of others."""
        shared = self._shared(update)
        if not shared:
            save_tokenizers(folder, *self._tokenizers)
        for name, (source, value) in shared.items():
            target = folder / name
            known = weights.get(name) or (file_digest(target) if target.exists() else "")
            if known == value or not (known or is_weights(name)):
                link(source, target)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not is_weights(path.name))
        return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}

    def _shared(self, update: int) -> dict[str, tuple[Path, str]]:
        """Files of the first complete snapshot, with their SHA-256."""
        others = (entry for entry in self._kept.entries().values() if entry.update != update)
        first = next((entry for entry in others if self._kept.is_intact(entry)), None)
        if first is None:
            return {}
        return {name: (self._kept.path(first.update) / name, value) for name, value in first.files.items()}


def _round(file: Path) -> None:
    tensors = load_file(file)
    rounded = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in tensors.items()}
    save_file(rounded, file, metadata={"format": "pt"})
