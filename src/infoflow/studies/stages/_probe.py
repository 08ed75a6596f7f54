"""Probe one model: what can be read from each layer, and how hard it is to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import digest

from .._measures import measures_by_table
from .._probing import probing_measures
from .._study_models import StudyModels
from .._workbench import Schemas
from ._measure import AbstractStudyMeasure, behind_each_other, measured_subjects
from ._pairs import described
from ._stage import AbstractStage
from ._train import Train


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractProbing(AbstractStudyMeasure):
    """Probes of one model, at the end of its training or before, on the sentences that the plan's tasks name."""

    @property
    def corpus(self) -> Corpus:
        probed = self.models.data.probed
        assert probed is not None, "the plan names tasks"
        return probed

    def table_keys(self) -> dict[str, str]:
        states = self.models.states_key(self.subject)
        return {name: digest([states, self.models.probed, described(own)]) for name, own in self.by_table.items()}

    def measured_schemas(self) -> Schemas:
        return {name: writing[0].table for name, writing in self.by_table.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeModel(AbstractProbing):
    """A model of a study, trained or not, probed for the tasks of the plan's section `probing`."""

    kind = "probe"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ProbeModel]":
        """Every model that is measured; controls, which are the same for many objectives, behind each other."""
        if not models.plan.probing.on:
            return []
        trained = [stage.recipe for stage in before if isinstance(stage, Train)]
        subjects = measured_subjects(models, trained)
        return behind_each_other([cls(models=models, subject=each, bench=models.bench) for each in subjects])

    @property
    def label(self) -> str:
        return f"probe {self.subject.label}"

    @property
    def estimate(self) -> float:
        return 0.05 * len(self.models.plan.probing.tasks)

    @cached_property
    def key(self) -> str:
        return digest(["probe", self.subject.name, self.table_keys()])

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        return measures_by_table(probing_measures(self.models.plan.probing))

    def samples_key(self) -> str:
        return digest(["no sample"])
