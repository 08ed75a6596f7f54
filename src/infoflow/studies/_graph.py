"""The graph of a study: all stages of a plan in order of dependency, their costs, and which are missing."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from infoflow.foundation import atomic_write, read_object
from infoflow.results import RunFolder

from ._plan import StudyPlan
from ._study_models import StudyModels
from .stages import AbstractStage, Check
from .stages import stages as stage_kinds

RECORDS = "stages"
_SHARES = 10**6  # resolution of the shares of a GPU
_UNIT = 60.0  # seconds to train a masked LM, until a record exists


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Stages, each after those that it depends on."""

    stages: Sequence[AbstractStage]
    folder: RunFolder

    def __iter__(self) -> Iterator[AbstractStage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, key: str) -> AbstractStage:
        return self.by_key[key]

    @property
    def by_key(self) -> Mapping[str, AbstractStage]:
        return {stage.key: stage for stage in self.stages}

    def of(self, kind: type[AbstractStage]) -> list:
        """The stages of one class."""
        return [stage for stage in self.stages if isinstance(stage, kind)]

    def missing(self) -> list[AbstractStage]:
        """The stages that are not done."""
        return [stage for stage in self.stages if not stage.is_done()]

    def records(self) -> list[dict[str, Any]]:
        """Usage of the stages that ended here, in order: label, kind, wall and CPU seconds, peak memory, host, threads.

        Stages shorter than a twentieth of a second leave no record; those of an earlier infoflow lack `cpu_seconds`.
        """
        return records_of(self.stages, self.folder)


def graph(plan: StudyPlan | Path | str, out: RunFolder | Path | str, prepared: bool = False) -> Graph:
    """All stages of a plan in the run folder `out`; data are prepared, but nothing is trained or measured yet.

    Scripts use it to run parts of a study: `for stage in graph(plan, out): ...` with `stage.kind`, `stage.label`,
    `stage.is_done()`, `stage.run()`, `stage.tables()`. `prepared`: see `StudyModels`.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    models = StudyModels(plan, folder, prepared)
    stages: list[AbstractStage] = []
    for kind in stage_kinds():
        stages += kind.planned(models, stages)
    stages.append(Check(folder=folder, stages=tuple(stages), needs=tuple(stage.key for stage in stages)))
    costs = Costs(folder, plan)
    return Graph(stages=[costs.on(stage) for stage in stages], folder=folder)


class Costs:
    """Seconds of the stages in one run folder."""

    def __init__(self, folder: RunFolder, plan: StudyPlan) -> None:
        self._seconds = {key: float(record["seconds"]) for key, record in records(folder).items()}
        self._by_kind: dict[str, list[float]] = {}
        for record in records(folder).values():
            if record.get("estimate"):
                self._by_kind.setdefault(record["kind"], []).append(record["seconds"] / record["estimate"])
        self._machine = {"threads": plan.engine.threads, "resources": _resources(plan)}

    def on(self, stage: AbstractStage) -> AbstractStage:
        """The stage with its cost and the resources that it needs."""
        return replace(stage, cost=self.of(stage), **(self._machine if stage.runs_models else {}))

    def of(self, stage: AbstractStage) -> float:
        """Seconds that the stage took, or an estimate from other stages of its kind."""
        if stage.key in self._seconds:
            return self._seconds[stage.key]
        scale = median(self._by_kind[stage.kind]) if stage.kind in self._by_kind else _UNIT
        return scale * stage.estimate


def keep_record(folder: RunFolder, stage: AbstractStage, usage: Any) -> None:
    """Record what a stage took, together with its estimate."""
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
    """Records of finished stages, by their keys."""
    found = {path.stem: _read(path) for path in sorted(_folder(folder).glob("*.json"))}
    return {key: record for key, record in found.items() if record is not None}


def records_of(stages: Iterable[AbstractStage], folder: RunFolder) -> list[dict[str, Any]]:
    """Records of a graph's stages, in order, if they exist."""
    known = records(folder)
    return [known[stage.key] for stage in stages if stage.key in known]


def _folder(folder: RunFolder) -> Path:
    return folder.path / "work" / RECORDS


def _read(path: Path) -> dict[str, Any] | None:
    """A record, or None if it is damaged."""
    try:
        record = read_object(path)
        return record if record["seconds"] > 0 and isinstance(record["kind"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resources(plan: StudyPlan) -> dict[str, float]:
    """A stage takes a whole GPU, or the share that the plan sets."""
    import torch

    on_gpu = plan.training.device.startswith("cuda") or (plan.training.device == "auto" and torch.cuda.is_available())
    return {"GPU": _share(plan.engine.per_gpu)} if on_gpu else {}


def _share(stages: int) -> float:
    """Share of one GPU when `stages` run at a time: rounded down, so that all fit."""
    return math.floor(_SHARES / stages) / _SHARES
