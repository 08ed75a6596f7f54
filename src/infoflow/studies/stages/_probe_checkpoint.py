"""Probe a model of a study at an update that its training kept: probes are trained anew at each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.flow import AbstractMeasure
from infoflow.foundation import digest
from infoflow.over_training import over_training
from infoflow.results import Subject, TableSchema

from .._measures import OF_PROBES, checkpoint_tables, measures_by_table
from .._probing import probing_measures
from .._study_models import StudyModels
from .._workbench import Part
from ._keep import Keep
from ._measure import MEASURED
from ._measure_checkpoint import heavy_updates
from ._probe import AbstractProbing
from ._stage import AbstractStage
from ._train import Train


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeCheckpoint(AbstractProbing):
    """A model at a kept update, probed for the tasks of the plan's section `probing`, on the same sentences.

    Which tables: those of `OF_PROBES` that `light` or, at its updates, `heavy` of the plan's checkpoints name.
    """

    kind = "probe checkpoint"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ProbeCheckpoint]":
        """The updates at which probes are asked for, each behind its training."""
        if not models.plan.checkpoints.on:
            return []
        trained = {stage.recipe: stage.key for stage in before if isinstance(stage, Train)}
        kept = {stage.recipe: stage.key for stage in before if isinstance(stage, Keep)}
        stages = [
            cls(
                models=models,
                subject=Subject(recipe=recipe, update=step),
                bench=models.bench,
                needs=(key, kept[recipe]),
            )
            for recipe, key in trained.items()
            for step in models.wanted(recipe)
        ]
        return [stage for stage in stages if stage.by_table]

    @property
    def label(self) -> str:
        return f"probe {self.subject.label}"

    @property
    def estimate(self) -> float:
        return 0.05 * max(len(self.models.plan.probing.tasks), 1)

    @cached_property
    def key(self) -> str:
        return digest(["probe checkpoint", self.subject.name, self.subject.update, self.table_keys()])

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        heavy = self.subject.update in heavy_updates(self.models, self.subject.recipe)
        wanted = {*OF_PROBES} & {*checkpoint_tables(self.models.plan, heavy)}
        every = measures_by_table(probing_measures(self.models.plan.probing)) if wanted else {}
        return {name: own for name, own in every.items() if name in wanted}

    def samples_key(self) -> str:
        return ""  # no comparison draws on its sample

    def tables(self) -> Part:
        clock = self.models.clock(self.subject.recipe, self.subject.update or 0)
        keys = {**self.subject.keys(), **clock.columns()}
        stored = self.bench.read_each(MEASURED, self.table_keys())
        schemas = self.measured_schemas()
        return {over_training(schemas[name]).name: frame.assign(**keys) for name, frame in stored.items()}

    def schemas(self) -> dict[str, TableSchema]:
        every = [over_training(schema) for schema in self.measured_schemas().values()]
        return {schema.name: schema for schema in every}
