"""The key of a run: everything that determines its weights; only the same run continues a folder."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from infoflow.foundation import UserError, current_display, digest, named_fields, read_object
from infoflow.objectives import AbstractObjective, make_objective

from ._config import TrainConfig
from ._data import TrainingData

# Settings that affect recording, not learning.
_FREE = {"log_every", "evaluate_every", "save_every", "keep_last", "device"}

FACTS = "training.json"
"""File in every model folder trained by infoflow: training statistics and the key."""
_OPTION = "objective "
INITIAL_WEIGHTS = "initial weights"
PARENT = "parent"
"""Key entry of a run that continues a model: the digest of that model's weights and configuration."""


def run_key(
    objective: AbstractObjective, config: TrainConfig, data: TrainingData, model: PreTrainedModel, parent: str = ""
) -> dict[str, Any]:
    """Everything that determines the final weights, as flat JSON, including a parent model."""
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    settings["betas"] = list(config.betas)
    # As they come back from JSON.
    options = {name: list(v) if isinstance(v, tuple) else v for name, v in named_fields(objective).items()}
    shape = {name: _nameless(value) for name, value in model.config.to_dict().items() if not name.startswith("_")}
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


def _nameless(value: Any) -> Any:
    """A part of a configuration without its source folder, which may have moved."""
    if not isinstance(value, dict):
        return value
    return {name: "" if name == "_name_or_path" else _nameless(part) for name, part in value.items()}


def check_key(saved: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise a UserError that lists the settings in which two runs differ."""
    differing = [name for name in wanted if saved.get(name) != wanted[name]]
    if differing:
        changes = "; ".join(f"{name} was {saved.get(name)}, is {wanted[name]}" for name in differing[:4])
        raise UserError(
            f"{folder} holds a run with other settings: {changes}.\n"
            "Give another output folder, or the old settings to continue that run."
        )


def check_conditions(saved: dict[str, Any], present: dict[str, Any], folder: Path) -> None:
    """Raise a UserError unless a run continues under its original conditions.

    They depend on the machine and the launch, not on the settings; a run of an earlier version has none.
    """
    for name, value in saved.items():
        if present[name] != value:
            raise UserError(
                f"{folder} was started with {name} {value}. Got {name} {present[name]}, so it would not end with the "
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
    """The training objective of the model in `folder`, with its options.

    None if infoflow did not train it, or if it was tuned on a task, which is not a pretraining objective.
    """
    try:
        key = read_object(Path(folder) / FACTS)["key"]
        options = {name.removeprefix(_OPTION): value for name, value in key.items() if name.startswith(_OPTION)}
        if "task" in options:  # all fine-tuning objectives have this option, and no others
            return None
        return make_objective(key["objective"], **options)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    except UserError as error:  # from another version of infoflow
        current_display().warn(f"{folder} was trained for an objective unknown to this version of infoflow. {error}")
        return None
