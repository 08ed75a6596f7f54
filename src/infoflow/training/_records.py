"""Records in the folder of a training run: the key of everything that determines its weights, and log.jsonl."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError, atomic_write, current_display, digest, named_fields, read_object
from infoflow.objectives import AbstractObjective, make_objective

from ._config import TrainConfig
from ._data import TrainingData
from ._update import UpdateResult

# The key of a run is everything that determines its weights; a folder is continued only by a run with the same key.
# Settings that affect only what is recorded, not what is learned.
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
    """Everything that determines the final weights, including a parent model, as flat JSON."""
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    settings["betas"] = list(config.betas)
    # In the form that reading JSON returns.
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
    """A part of a configuration without the folder from which it was read, since the folder may have moved."""
    if not isinstance(value, dict):
        return value
    return {name: "" if name == "_name_or_path" else _nameless(part) for name, part in value.items()}


def check_key(saved: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise a UserError that lists the settings in which two runs differ, if there are any."""
    differing = [name for name in wanted if saved.get(name) != wanted[name]]
    if differing:
        changes = "; ".join(f"{name} was {saved.get(name)}, is {wanted[name]}" for name in differing[:4])
        raise UserError(
            f"{folder} holds a run with other settings: {changes}.\n"
            "Give another output folder, or the old settings to continue that run."
        )


def check_conditions(saved: dict[str, Any], present: dict[str, Any], folder: Path) -> None:
    """Raise a UserError unless a run continues under its original conditions.

    The conditions depend on the machine and the launch, not on the settings. Runs of earlier versions recorded no
    conditions and always pass.
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
    # If rows are cut from a corpus, their digest covers the cuts and labels too.
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


# log.jsonl: one JSON line per `log_every` updates, and one per evaluation.
class MetricsLog:
    """Append-only log of a run; after a resume it continues as if uninterrupted."""

    def __init__(self, path: Path, after_update: int) -> None:
        self._path = path
        kept = [line for line in read_log(path) if line["update"] <= after_update] if path.exists() else []
        with atomic_write(path) as temporary:
            temporary.write_text("".join(f"{json.dumps(line)}\n" for line in kept), encoding="utf-8")

    def write(self, **fields: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


@dataclasses.dataclass(slots=True)
class LogWindow:
    """Sums over the updates since the last line of the log.

    Tensors are read only when a line is complete, so that an accelerator never waits for the log.
    """

    losses: dict[str, Any] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    updates: int = 0
    norms: Any = 0.0
    _tokens: int = dataclasses.field(default=0, init=False)
    _wall: float = dataclasses.field(default_factory=time.perf_counter, init=False)
    _cpu: float = dataclasses.field(default_factory=time.process_time, init=False)

    def add(self, result: UpdateResult) -> None:
        for name, loss in result.losses.items():
            self.losses[name] = self.losses.get(name, 0.0) + loss
            self.counts[name] = self.counts.get(name, 0) + result.counts[name]
        self.norms = self.norms + result.gradient_norm
        self.updates += 1
        self._tokens += result.source_tokens

    @property
    def finite(self) -> bool:
        return math.isfinite(float(self.norms)) and all(math.isfinite(float(loss)) for loss in self.losses.values())

    def close(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Return the means since the last line (`loss` is the weighted sum of the terms), and start again."""
        losses = {name: float(loss) / max(self.counts[name], 1) for name, loss in self.losses.items()}
        norm = float(self.norms) / max(self.updates, 1)
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        line = {
            "loss": sum(weights[name] * loss for name, loss in losses.items()),
            "losses": losses,
            "gradient_norm": norm,
            "tokens_per_second": round(self._tokens / max(wall, 1e-9)),
            "tokens_per_cpu_second": round(self._tokens / max(cpu, 1e-9)),
        }
        self.__init__()
        return line

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, so that a resumed run writes the same line (except for speeds)."""
        losses = {name: float(loss) for name, loss in self.losses.items()}
        return {"losses": losses, "counts": self.counts, "updates": self.updates, "norms": float(self.norms)}


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a log.jsonl, without a last line cut off by a kill."""
    lines = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(entry, dict):
            break
        lines.append(entry)
    return lines
