"""What a training wrote beside its checkpoint."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAINER_STATE = "trainer_state.json"


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
    """The `trainer_state.json` of Hugging Face's `Trainer` in a checkpoint's folder; empty where there is none."""
    try:
        entries = json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return TrainerState()
    if not isinstance(entries, dict):
        return TrainerState()
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
