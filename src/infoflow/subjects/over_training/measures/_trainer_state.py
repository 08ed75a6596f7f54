"""Records that a training wrote with its checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.foundation import read_object

from ._checkpoint_names import MOST_UPDATES

TRAINER_STATE = "trainer_state.json"
MANIFEST = "manifest.json"
_MOST = 1e300


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """A checkpoint's position in its training, as recorded by the training; None and NaN: not recorded."""

    step: int | None = None
    updates: int | None = None  # of the whole training
    tokens: float = math.nan  # read as input
    lr: float = math.nan
    training_loss: float = math.nan
    validation_loss: float = math.nan


def trainer_state(folder: Path) -> TrainerState:
    """The content of a checkpoint's `trainer_state.json` (Hugging Face's `Trainer`), or of infoflow's manifest next to
    it.

    Empty if there is neither.
    """
    entries = _read(folder / TRAINER_STATE)
    return _of_trainer(entries) if entries else _of_manifest(_read(folder.parent / MANIFEST), folder.name)


def listed(home: Path) -> dict[str, dict[str, str]] | None:
    """The checkpoints in a folder's manifest, by name, with the SHA-256 of their files; None: no manifest."""
    if not (home / MANIFEST).is_file():
        return None
    entries = {_folder(entry): entry.get("files") for entry in _snapshots(_read(home / MANIFEST))}
    return {name: files if isinstance(files, dict) else {} for name, files in entries.items()}


def _of_manifest(manifest: Mapping[str, Any], name: str) -> TrainerState:
    entry = next((entry for entry in _snapshots(manifest) if _folder(entry) == name), None)
    if entry is None:
        return TrainerState()
    schedule = manifest.get("schedule")
    steps = [step for step in schedule if _count(step)] if isinstance(schedule, list) else []
    return TrainerState(
        step=_count(entry.get("update")),
        updates=max(steps, default=None),
        tokens=_number(entry.get("tokens")),
        lr=_number(entry.get("learning_rate")),
        training_loss=_number(entry.get("loss")),
    )


def _snapshots(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = manifest.get("snapshots")
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _count(entry.get("update")) is not None]


def _folder(entry: Mapping[str, Any]) -> str:
    return f"step-{entry['update']:08}"


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        entries = read_object(path)
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _of_trainer(entries: Mapping[str, Any]) -> TrainerState:
    step = _count(entries.get("global_step"))
    logs = entries.get("log_history")
    logs = [line for line in logs if isinstance(line, dict)] if isinstance(logs, list) else []
    before = [line for line in logs if step is None or _number(line.get("step")) <= step]
    tokens = _number(entries.get("num_input_tokens_seen"))
    return TrainerState(
        step=step,
        updates=_count(entries.get("max_steps")) or None,
        tokens=tokens if tokens > 0 or step == 0 else math.nan,  # 0: `Trainer` did not count tokens
        lr=_newest(before, "learning_rate"),
        training_loss=_newest(before, "loss"),
        validation_loss=_newest(before, "eval_loss"),
    )


def _newest(lines: list[Mapping[str, Any]], name: str) -> float:
    return next((_number(line[name]) for line in reversed(lines) if name in line), math.nan)


def _number(value: Any) -> float:
    """A value as a finite float; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if abs(value) < _MOST else math.nan


def _count(value: Any) -> int | None:
    """A number of updates; None for anything else, or for an impossibly large number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_UPDATES else None
