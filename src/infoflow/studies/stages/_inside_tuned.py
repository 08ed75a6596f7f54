"""What tuning did to the layers and heads of one model: before against after."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from infoflow.adaptation import INSIDE_TABLES, InsideSizes, TunedModel, inside_view, load_tuned
from infoflow.flow import PassOptions, agree
from infoflow.foundation import digest
from infoflow.results import KEYS, TableSchema

from .._quiet import without_notes
from .._study_models import StudyModels
from .._tuned_subject import TunedSubject
from .._workbench import Part
from ._stage import AbstractStage
from ._tune import Tune, tune_stage_key

_INSIDE = "inside"
_VERSION = 2  # raise when the same models are looked at otherwise


@dataclass(frozen=True, kw_only=True, eq=False)
class InsideTuned(AbstractStage):
    """One pretrained model and those tuned from it in full on all examples of one task, all seeds together; of those
    tuned on shuffled labels how far their spaces moved."""

    kind = "inside"
    tuned: TunedSubject

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[InsideTuned]":
        stages = [stage for stage in before if isinstance(stage, Tune) and stage.tuned.inside]
        return [cls(tuned=stage.tuned, needs=(stage.key,)) for stage in stages]

    @cached_property
    def key(self) -> str:
        versions = [[schema.name, schema.version] for schema in INSIDE_TABLES.values()]
        sizes, tokens = asdict(self._sizes), self.models.plan.analysis.tokens_per_batch
        return digest(["inside", _VERSION, versions, tune_stage_key(self.tuned), sizes, tokens, self.models.data_key])

    @property
    def label(self) -> str:
        control = f" on {self.tuned.control}" if self.tuned.control else ""
        return f"look inside {self.tuned.subject.name} tuned for {self.tuned.asked.name}{control}"

    @property
    def estimate(self) -> float:
        return 0.3 if len(self._schemas) > 1 else 0.05

    @property
    def models(self) -> StudyModels:
        return self.tuned.models

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_INSIDE, self.key))

    def run(self) -> dict[str, Any]:
        with without_notes():
            self.models.bench.tables(_INSIDE, self.key, self._schemas, self._look)
        return {}

    def tables(self) -> Part:
        columns = self.tuned.columns()
        return {name: frame.assign(**columns) for name, frame in self.models.bench.read(_INSIDE, self.key).items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {name: schema.with_keys(*KEYS) for name, schema in self._schemas.items()}

    @property
    def _schemas(self) -> dict[str, TableSchema]:
        return {name: INSIDE_TABLES[name] for name in self.tuned.inside}

    @property
    def _sizes(self) -> InsideSizes:
        return InsideSizes()

    def _look(self) -> Part:
        models, subject, tuned = self.models, self.tuned.subject, self.tuned
        found = self._tuned_models()
        task, device = found[0].task, models.plan.training.device
        asked = models.data.analysed
        options = PassOptions(
            tokens_per_batch=models.plan.analysis.tokens_per_batch,
            max_length=found[0].max_length,
            corruption=models.objective(subject.recipe),
        )
        tables = inside_view(
            tuned.load(),
            [one.load(device) for one in found],
            task,
            models.tasks.data(tuned.asked),
            untrained=models.load(subject.before_training()),
            pretraining=asked,
            tagged=asked if "upos" in asked.columns else None,
            options=options,
            sizes=self._sizes,
            seeds=[one.seed for one in found],
            only=tuned.inside,
        )
        shared = self.tuned.tuned_columns(task.shape, int(found[0].facts["examples"]))
        return {name: frame.assign(**shared) for name, frame in tables.items()}

    def _tuned_models(self) -> list[TunedModel]:
        """Those of all seeds, as `tune` left them."""
        config = self.tuned.config
        home = self.tuned.folder / self.tuned.asked.name / config.way
        return [load_tuned(home / f"seed-{seed}") for seed in config.seeds]
