"""What a training wrote beside its checkpoint."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAINER_STATE = "trainer_state.json"
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """Where a checkpoint stands in its training, in the training's own words; None and NaN: it does not say."""

    step: int | None = None
    updates: int | None = None  # of the whole training
    tokens: float = math.nan  # read as input
    lr: float = math.nan
    training_loss: float = math.nan
    validation_loss: float = math.nan


def trainer_state(folder: Path) -> TrainerState:
    """What the `trainer_state.json` of Hugging Face's `Trainer` in a checkpoint's folder says, or beside the folder the
    manifest of infoflow's own training; empty where there is none.
    """
    entries = _read(folder / TRAINER_STATE)
    return _of_trainer(entries) if entries else _of_manifest(_read(folder.parent / MANIFEST), folder.name)


def listed(home: Path) -> dict[str, dict[str, str]] | None:
    """The checkpoints that a folder's manifest knows, by name, with the SHA-256 of their files; None: no manifest."""
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
    """The JSON object in a file; empty where there is none."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
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
        tokens=tokens if tokens > 0 or step == 0 else math.nan,  # 0: `Trainer` was not asked to count
        lr=_newest(before, "learning_rate"),
        training_loss=_newest(before, "loss"),
        validation_loss=_newest(before, "eval_loss"),
    )


def _newest(lines: list[Mapping[str, Any]], name: str) -> float:
    return next((_number(line[name]) for line in reversed(lines) if name in line), math.nan)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
