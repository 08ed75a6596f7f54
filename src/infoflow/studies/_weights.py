"""Trained weights and their copies under `models/`, verified byte for byte against training or made again."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from infoflow.foundation import UserError, atomic_folder, atomic_write, current_display, file_digest, read_object

_SUMS = "sums.json"  # next to the model's folder: SHA-256 of each of its files and of the training log
_LOG = "../log.jsonl"
_FACTS = "training.json"  # in every model folder that infoflow trained


def keep_sums(model: Path) -> None:
    """Record checksums of what training has just written to the folder `model`."""
    with atomic_write(model.parent / _SUMS) as temporary:
        sums = _sums(model) | {_LOG: file_digest(model / _LOG)}
        temporary.write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def is_intact(model: Path) -> bool:
    """Whether the folder is as training left it; a model of a version without checksums counts as intact."""
    if not (model / "model.safetensors").is_file() or not (model / _LOG).is_file():
        return False
    kept = _kept(model)
    if kept is None:
        keep_sums(model)
        return True
    return _holds(model, kept)


def is_published(model: Path, target: Path) -> bool:
    """Whether the trained weights in `model` have a complete copy at `target`."""
    return target.exists() and _holds(target, _of_model(_kept(model)) or _sums(model))


def publish(model: Path, target: Path, name: str) -> None:
    """Copy trained weights to `target`, unless a complete copy exists.

    Raises:
        UserError: `target` holds something that infoflow did not train.
    """
    if is_published(model, target):
        return
    if target.exists():
        check_target(model, target)
        if _same_training(model, target):
            current_display().note(f"{target} was damaged: {name} is restored from the trained state.")
    with atomic_folder(target) as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)


def check_target(model: Path, target: Path) -> None:
    """Check that a published model replaces nothing but another one.

    Raises:
        UserError: `target` holds something that infoflow did not train.
    """
    if not target.exists() or (target / _FACTS).exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if any(_holds(target, {name: kept}) for name, kept in _of_model(_kept(model)).items()):
        return  # damaged remains of a model
    raise UserError(
        f"{target} would be replaced by a trained model, but infoflow did not write it (it has no {_FACTS}). "
        "Move it, or choose another --out."
    )


def discard(model: Path, name: str) -> None:
    """Remove damaged weights, so that training restores them: from its last checkpoint if its log is intact."""
    current_display().note(f"The weights of {name} in {model} differ from the trained ones and are restored.")
    kept = _kept(model)
    log_is_whole = kept is not None and _LOG in kept and _holds(model, {_LOG: kept[_LOG]})
    shutil.rmtree(model if log_is_whole else model.parent, ignore_errors=True)
    (model.parent / _SUMS).unlink(missing_ok=True)


def _same_training(first: Path, second: Path) -> bool:
    """Whether two model folders come from the same training, as far as the second one records it."""
    facts = [path / _FACTS for path in (first, second)]
    return facts[0].read_bytes() == facts[1].read_bytes() if all(path.is_file() for path in facts) else False


def _sums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def _of_model(kept: Mapping[str, str] | None) -> dict[str, str]:
    return {name: digest for name, digest in (kept or {}).items() if name != _LOG}


def _kept(model: Path) -> dict[str, str] | None:
    try:
        kept = read_object(model.parent / _SUMS)
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def _holds(folder: Path, sums: Mapping[str, str]) -> bool:
    return all((folder / name).is_file() and file_digest(folder / name) == kept for name, kept in sums.items())
