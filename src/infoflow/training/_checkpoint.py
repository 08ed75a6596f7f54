"""Checkpoints: plain Hugging Face folders with the training state inside, written whole or not at all.

```
checkpoints/step-00000500/     config.json, model.safetensors, tokenizers, README.md; rest.safetensors with the other
                               weights if model.safetensors holds only a part of what is trained
            .../training/      optimizer.safetensors, hooks.safetensors, state.json
checkpoints/latest             the name of the newest checkpoint; written last, so it never points at half a checkpoint
checkpoints/best.json          update and loss of the checkpoint with the lowest held-out loss
```
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError, atomic_folder, atomic_write, read_object, sweep_partial
from infoflow.models import save_model

_REST = "rest.safetensors"


@dataclass(kw_only=True, slots=True)
class TrainingState:
    """What resuming needs besides weights and optimiser; samplers and noise are determined by `update`."""

    update: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    supervised_tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    window: dict[str, Any] = field(default_factory=dict)  # sums since the last line of the log
    validation: dict[str, float] = field(default_factory=dict)  # newest held-out loss of each term
    best: dict[str, Any] | None = None  # update and loss of the checkpoint with the lowest held-out loss
    key: dict[str, Any] = field(default_factory=dict)  # settings of the run; a resumed run must have the same settings
    conditions: dict[str, Any] = field(default_factory=dict)  # precision, number of processes; these stay too


Exported = Callable[[PreTrainedModel], PreTrainedModel]
"""The part of a trained module that its folder holds (`AbstractObjective.exported`)."""


def the_whole(module: PreTrainedModel) -> PreTrainedModel:
    return module


def save_rest(module: PreTrainedModel, part: PreTrainedModel, folder: Path) -> None:
    """Write the weights of `module` that are outside the saved `part`, if there are any."""
    if part is not module:
        save_file(_contiguous(_rest(module, part)), folder / _REST)


def _rest(module: PreTrainedModel, part: PreTrainedModel) -> dict[str, Tensor]:
    """Weights outside `part`, by their first name in `module`; weights shared with the part are not included."""
    seen = {id(tensor) for tensor in part.state_dict(keep_vars=True).values()}
    found = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found


class Checkpoints:
    def __init__(self, folder: Path, exported: Exported = the_whole) -> None:
        self.folder, self._exported = folder, exported
        sweep_partial(folder)

    def path(self, update: int) -> Path:
        return self.folder / f"step-{update:08}"

    def updates(self) -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    def latest(self) -> Path | None:
        return next(iter(self.resumable()), None)

    def resumable(self) -> list[Path]:
        """Checkpoints with a training state, newest first; checkpoints after `latest` are left out."""
        whole = [self.path(update) for update in self.updates() if (self.path(update) / "training").is_dir()]
        pointer = self.folder / "latest"
        named = (
            self.folder / pointer.read_text(errors="replace", encoding="utf-8").strip() if pointer.exists() else None
        )
        if named in whole:
            whole = whole[: whole.index(named) + 1]
        return whole[::-1] if pointer.exists() else []

    def best(self) -> dict[str, Any] | None:
        """`update` and `loss` of the checkpoint with the lowest held-out loss."""
        try:
            return read_object(self.folder / "best.json")
        except (FileNotFoundError, ValueError):
            return None

    def save(
        self,
        state: TrainingState,
        module: PreTrainedModel,
        optimizer: dict[str, Tensor],
        hooks: dict[str, Tensor],
        tokenizers: tuple[Any, Any] = (None, None),
        card: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint, and then point `latest` at it."""
        path = self.path(state.update)
        with atomic_folder(path) as temporary:
            part = self._exported(module)
            save_model(part, temporary, *tokenizers, card)
            save_rest(module, part, temporary)
            training = temporary / "training"
            training.mkdir()
            save_file(_contiguous(optimizer), training / "optimizer.safetensors")
            save_file(_contiguous(hooks), training / "hooks.safetensors")
            fields = {name: getattr(state, name) for name in TrainingState.__slots__}
            (training / "state.json").write_text(json.dumps(fields), encoding="utf-8")
        with atomic_write(self.folder / "latest") as temporary:
            temporary.write_text(path.name, encoding="utf-8")
        with atomic_write(self.folder / "best.json") as temporary:
            temporary.write_text(json.dumps(state.best), encoding="utf-8")
        return path

    def tidy(self, keep_last: int) -> None:
        updates, latest, best = self.updates(), self.latest(), self.best()
        kept = {*updates[-keep_last:], *([best["update"]] if best else [])}
        for update in updates:
            if update not in kept and self.path(update) != latest:
                self._remove(update)

    def drop_after(self, update: int) -> None:
        """Remove checkpoints that a killed run wrote but did not yet mark as latest."""
        for later in self.updates():
            if later > update:
                self._remove(later)

    def _remove(self, update: int) -> None:
        # Renamed first, so that nothing partial looks like a checkpoint after a kill.
        doomed = self.folder / f".{self.path(update).name}.partial"
        self.path(update).rename(doomed)
        shutil.rmtree(doomed)


def why_unreadable(path: Path) -> str:
    """Why a checkpoint on disk is unreadable; "" if it is readable."""
    try:
        load_training_state(path)
        for weights in (path / "model.safetensors", *path.glob(_REST)):
            load_file(weights)
    except (FileNotFoundError, ValueError, KeyError, TypeError, SafetensorError) as error:
        return str(error).partition("\n")[0]
    return ""


def load_training_state(path: Path) -> tuple[TrainingState, dict[str, Tensor], dict[str, Tensor]]:
    training = path / "training"
    state = TrainingState(**read_object(training / "state.json"))
    return state, load_file(training / "optimizer.safetensors"), load_file(training / "hooks.safetensors")


def load_weights(module: PreTrainedModel, path: Path, exported: Exported = the_whole) -> None:
    """Load a checkpoint's weights exactly into `module`; tied weights are stored once."""
    part = exported(module)
    _load(part, path)
    if part is module:
        return
    rest = _rest(module, part)
    stored = load_file(path / _REST)
    if stored.keys() != rest.keys():
        raise UserError(
            f"The checkpoint {path} does not fit the model: in {_REST} it contains {sorted(stored)[:3]}, but the "
            f"model has {sorted(rest)[:3]}.\nUse another output folder for another model."
        )
    module.load_state_dict(stored, strict=False)


def _load(module: PreTrainedModel, path: Path) -> None:
    missing, unexpected = module.load_state_dict(load_file(path / "model.safetensors"), strict=False)
    tied = set(getattr(module, "all_tied_weights_keys", None) or {})
    if unexpected or set(missing) - tied:
        raise UserError(
            f"The checkpoint {path} does not fit the model: unexpected {unexpected[:3]}, "
            f"missing {sorted(set(missing) - tied)[:3]}.\nUse another output folder for another model."
        )


def holds_weights(module: PreTrainedModel, path: Path, exported: Exported = the_whole) -> bool:
    part = exported(module)
    files = {path / "model.safetensors": dict(part.named_parameters())}
    if part is not module:
        files[path / _REST] = _rest(module, part)
    if not all(file.exists() for file in files):
        return False
    return all(
        name not in stored or torch.equal(parameter.detach().cpu(), stored[name])
        for file, parameters in files.items()
        for stored in [load_file(file)]
        for name, parameter in parameters.items()
    )


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(tensor).detach().cpu().contiguous() for name, tensor in tensors.items()}
