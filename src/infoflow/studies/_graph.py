"""The graph of a study: all stages of a plan, each behind what it needs, and which of them are missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.results import RunFolder

from ._costs import Costs, records_of
from ._plan import StudyPlan
from ._study_models import StudyModels
from .stages import STAGES, AbstractStage, Check


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Stages in an order in which each finds what it needs."""

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
        """What stages took that ended here, in order: label, kind, wall and CPU seconds, peak memory, host, threads.

        Stages of less than a twentieth of a second leave none; those of an earlier infoflow have no `cpu_seconds`.
        """
        return records_of(self.stages, self.folder)


def graph(plan: StudyPlan | Path | str, out: RunFolder | Path | str, prepared: bool = False) -> Graph:
    """All stages of a plan in the run folder `out`; nothing is trained or measured yet, but data are prepared.

    The way for scripts to do parts of a study: `for stage in graph(plan, out): ...` with `stage.kind`, `stage.label`,
    `stage.is_done()`, `stage.run()`, `stage.tables()`. `prepared`: see `StudyModels`.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    models = StudyModels(plan, folder, prepared)
    stages: list[AbstractStage] = []
    for kind in STAGES:
        stages += kind.planned(models, stages)
    stages.append(Check(folder=folder, stages=tuple(stages), needs=tuple(stage.key for stage in stages)))
    costs = Costs(folder, plan)
    return Graph(stages=[costs.on(stage) for stage in stages], folder=folder)
