"""Trained weights and their copies under `models/`: both are what training left, byte for byte, or are made again."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from infoflow.foundation import UserError, atomic_folder, atomic_write, current_display, file_digest

_SUMS = "sums.json"  # beside the model's folder: SHA-256 of each of its files, and of the log of the training
_LOG = "../log.jsonl"
_FACTS = "training.json"  # in every model folder that infoflow trained


def keep_sums(model: Path) -> None:
    """Note what training has just left in the folder `model`."""
    with atomic_write(model.parent / _SUMS) as temporary:
        sums = _sums(model) | {_LOG: file_digest(model / _LOG)}
        temporary.write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def is_intact(model: Path) -> bool:
    """Whether the folder holds what training left there; a model of a version that kept no sums counts as it is."""
    if not (model / "model.safetensors").is_file() or not (model / _LOG).is_file():
        return False
    kept = _kept(model)
    if kept is None:
        keep_sums(model)
        return True
    return _holds(model, kept)


def is_published(model: Path, target: Path) -> bool:
    """Whether the trained weights in `model` lie at `target` too, whole."""
    return target.exists() and _holds(target, _of_model(_kept(model)) or _sums(model))


def publish(model: Path, target: Path, name: str) -> None:
    """Copy trained weights to `target`, unless they are there whole.

    Raises:
        UserError: Something that infoflow did not train lies there.
    """
    if is_published(model, target):
        return
    if target.exists():
        check_target(model, target)
        if _same_training(model, target):
            current_display().note(f"{target} was damaged: {name} is published again from the trained state.")
    with atomic_folder(target) as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)


def check_target(model: Path, target: Path) -> None:
    """A published model may replace another one, and nothing else.

    Raises:
        UserError: Something that infoflow did not train lies there.
    """
    if not target.exists() or (target / _FACTS).exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if any(_holds(target, {name: kept}) for name, kept in _of_model(_kept(model)).items()):
        return  # what damage left of it
    raise UserError(
        f"{target} would be replaced by a trained model, but infoflow did not write it (it has no {_FACTS}). "
        "Move it, or choose another --out."
    )


def discard(model: Path, name: str) -> None:
    """Remove damaged weights, so that training makes them again: from its last checkpoint where its log is whole."""
    current_display().note(f"The weights of {name} in {model} are not those that were trained: they are made again.")
    kept = _kept(model)
    log_is_whole = kept is not None and _LOG in kept and _holds(model, {_LOG: kept[_LOG]})
    shutil.rmtree(model if log_is_whole else model.parent, ignore_errors=True)
    (model.parent / _SUMS).unlink(missing_ok=True)


def _same_training(first: Path, second: Path) -> bool:
    """Whether two model folders come from the same training, as far as the second one says."""
    facts = [path / _FACTS for path in (first, second)]
    return facts[0].read_bytes() == facts[1].read_bytes() if all(path.is_file() for path in facts) else False


def _sums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def _of_model(kept: Mapping[str, str] | None) -> dict[str, str]:
    return {name: digest for name, digest in (kept or {}).items() if name != _LOG}


def _kept(model: Path) -> dict[str, str] | None:
    try:
        kept = json.loads((model.parent / _SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def _holds(folder: Path, sums: Mapping[str, str]) -> bool:
    return all((folder / name).is_file() and file_digest(folder / name) == kept for name, kept in sums.items())
