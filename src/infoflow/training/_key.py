"""What the weights of a run depend on; a folder is continued only by the run that began it."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from infoflow.foundation import UserError, current_display, digest, named_fields
from infoflow.objectives import AbstractObjective, make_objective

from ._config import TrainConfig
from ._data import TrainingData

# Settings that change what is recorded, not what is learned.
_FREE = {"log_every", "evaluate_every", "save_every", "keep_last", "device"}

FACTS = "training.json"
"""In every model folder that infoflow trained: what the training took, and its key."""
_OPTION = "objective "
INITIAL_WEIGHTS = "initial weights"
PARENT = "parent"
"""In the key of a run that continues a model: the digest of that model's weights and configuration."""


def run_key(
    objective: AbstractObjective, config: TrainConfig, data: TrainingData, model: PreTrainedModel, parent: str = ""
) -> dict[str, Any]:
    """Everything the final weights follow from, as flat JSON; where the model is made of another one, that one too."""
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    settings["betas"] = list(config.betas)
    # As they come back from JSON.
    options = {name: list(v) if isinstance(v, tuple) else v for name, v in named_fields(objective).items()}
    shape = {name: value for name, value in model.config.to_dict().items() if not name.startswith("_")}
    return {
        "objective": objective.name,
        **{f"{_OPTION}{name}": value for name, value in options.items()},
        **settings,
        "model": digest(shape),
        INITIAL_WEIGHTS: _weights_digest(model),
        "source": _rows_digest(data.source),
        "target": _rows_digest(data.target) if objective.needs_translation else None,
        **({PARENT: parent} if parent else {}),
    }


def check_key(saved: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise a UserError that names the settings in which two runs differ."""
    differing = [name for name in wanted if saved.get(name) != wanted[name]]
    if differing:
        changes = "; ".join(f"{name} was {saved.get(name)}, is {wanted[name]}" for name in differing[:4])
        raise UserError(
            f"{folder} holds a run with other settings: {changes}.\n"
            "Give another output folder, or the old settings to continue that run."
        )


def check_conditions(saved: dict[str, Any], present: dict[str, Any], folder: Path) -> None:
    """Raise a UserError unless a run continues under the conditions that it was begun in.

    They follow from the machine and the launch, not from the settings; a run of an earlier version names none.
    """
    for name, value in saved.items():
        if present[name] != value:
            raise UserError(
                f"{folder} was begun with {name} {value}. Got {name} {present[name]}, so it would not end with the "
                "same weights.\nContinue it on the same kind of machine, with as many processes, or give another "
                "output folder."
            )


def _weights_digest(model: PreTrainedModel) -> str:
    hashed = hashlib.sha256()
    for name, parameter in model.named_parameters():
        hashed.update(name.encode())
        hashed.update(parameter.detach().float().cpu().contiguous().numpy().data)
    return hashed.hexdigest()[:16]


def _rows_digest(rows: Any) -> str | None:
    if rows is None:
        return None
    lengths, ids = np.asarray(rows.lengths, dtype=np.int64), np.asarray(rows.sentence_ids, dtype=np.int64)
    sample = np.linspace(0, len(ids) - 1, num=min(len(ids), 64)).astype(int)
    facts = [
        len(ids),
        int(lengths.sum()),
        int((ids * (lengths + 7)).sum()),
        [rows.row(int(i)).tolist() for i in sample],
    ]
    # Rows that are cut from a corpus say by which cuts, and with which labels.
    return digest([*facts, rows.digest] if hasattr(rows, "digest") else facts)


def trained_objective(folder: Path | str) -> AbstractObjective | None:
    """What the model in `folder` was trained for, with its options; None where no training of infoflow says so, or it
    was tuned on a task, which is no objective of pretraining."""
    try:
        key = json.loads((Path(folder) / FACTS).read_text(encoding="utf-8"))["key"]
        options = {name.removeprefix(_OPTION): value for name, value in key.items() if name.startswith(_OPTION)}
        if "task" in options:  # all objectives of fine-tuning say which, and no others
            return None
        return make_objective(key["objective"], **options)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    except UserError as error:  # of another version of infoflow
        current_display().warn(f"{folder} was trained for something that this infoflow does not know. {error}")
        return None
