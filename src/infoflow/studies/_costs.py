"""What stages cost: seconds on record in the run folder, else estimated from what is on record of their kind."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from infoflow.foundation import atomic_write
from infoflow.results import RunFolder

from ._plan import StudyPlan
from .stages import AbstractStage

RECORDS = "stages"
_SHARES = 10**6  # of a GPU
_UNIT = 60.0  # seconds of the training of a masked LM, before anything is on record


class Costs:
    """Seconds of stages in one run folder."""

    def __init__(self, folder: RunFolder, plan: StudyPlan) -> None:
        self._seconds = {key: float(record["seconds"]) for key, record in records(folder).items()}
        self._by_kind: dict[str, list[float]] = {}
        for record in records(folder).values():
            if record.get("estimate"):
                self._by_kind.setdefault(record["kind"], []).append(record["seconds"] / record["estimate"])
        self._machine = {"threads": plan.engine.threads, "resources": _resources(plan)}

    def on(self, stage: AbstractStage) -> AbstractStage:
        """The stage with its cost, and what it takes of a machine."""
        return replace(stage, cost=self.of(stage), **(self._machine if stage.runs_models else {}))

    def of(self, stage: AbstractStage) -> float:
        """Seconds that the stage took, or will take if it is like others of its kind."""
        if stage.key in self._seconds:
            return self._seconds[stage.key]
        scale = median(self._by_kind[stage.kind]) if stage.kind in self._by_kind else _UNIT
        return scale * stage.estimate


def keep_record(folder: RunFolder, stage: AbstractStage, usage: Any) -> None:
    """Note what a stage took, beside what it was estimated at."""
    if usage.seconds < 0.05:
        return
    record = {
        "kind": stage.kind,
        "label": stage.label,
        "estimate": stage.estimate,
        "seconds": round(usage.seconds, 2),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "peak_memory": usage.peak_memory,
        "host": usage.host,
        "device": usage.device,
        "threads": usage.threads,
    }
    path = _folder(folder) / f"{stage.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")


def records(folder: RunFolder) -> Mapping[str, dict[str, Any]]:
    """What finished stages took, by their keys."""
    found = {path.stem: _read(path) for path in sorted(_folder(folder).glob("*.json"))}
    return {key: record for key, record in found.items() if record is not None}


def records_of(stages: Iterable[AbstractStage], folder: RunFolder) -> list[dict[str, Any]]:
    """What the stages of a graph took, as far as it is on record, in their order."""
    known = records(folder)
    return [known[stage.key] for stage in stages if stage.key in known]


def _folder(folder: RunFolder) -> Path:
    return folder.path / "work" / RECORDS


def _read(path: Path) -> dict[str, Any] | None:
    """A record that is damaged is as if there were none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if record["seconds"] > 0 and isinstance(record["kind"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resources(plan: StudyPlan) -> dict[str, float]:
    """Of a GPU a stage takes all, or the share that the plan says."""
    import torch

    on_gpu = plan.training.device.startswith("cuda") or (plan.training.device == "auto" and torch.cuda.is_available())
    return {"GPU": _share(plan.engine.per_gpu)} if on_gpu else {}


def _share(stages: int) -> float:
    """Of one GPU, for so many stages at a time: rounded down, so that all fit."""
    return math.floor(_SHARES / stages) / _SHARES
