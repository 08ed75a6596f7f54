"""Probe the models of a study, trained and untrained, on the sentences for the plan's tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import digest
from infoflow.studies import AbstractStage, StudyModels, StudyPlan, Train
from infoflow.studies._data import Sentences
from infoflow.studies._measures import measures_by_table
from infoflow.studies._parts import at_most, distinct, usable
from infoflow.studies.stages._measure import AbstractStudyMeasure, described
from infoflow.studies.stages._measure_model import behind_each_other, measured_subjects

from ._requests import check_tasks, probing_measures, task_corpus

PROBED = "probed"


def _settings(plan: StudyPlan) -> list[Any]:
    return [plan.analysis.sentences, plan.probing] if plan.probing.on else []


def _probed(plan: StudyPlan, analysed: Corpus) -> Corpus | None:
    """The sentences on which probes are trained and scored; their lengths are those that the models were trained on."""
    if not plan.probing.on:
        return None
    section = plan.probing
    named = section.corpus and distinct(usable(task_corpus(section, section.corpus), plan.corpus))
    return at_most(named or analysed, section.corpus_sentences)


SENTENCES = {PROBED: Sentences(_settings, _probed)}


def prepared(models: StudyModels, elsewhere: bool) -> list[Any]:
    """Check that every task can be built from the study's sentences, once for all processes."""
    if not models.prepared and (probed := models.data.further[PROBED]) is not None:
        check_tasks(models.plan.probing, probed)
    return []


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractProbing(AbstractStudyMeasure):
    """Probes one trained or untrained model on the sentences for the plan's tasks."""

    @property
    def corpus(self) -> Corpus:
        probed = self.models.data.further[PROBED]
        assert probed is not None, "the plan names tasks"
        return probed

    def table_keys(self) -> dict[str, str]:
        states, probed = self.models.states_key(self.subject), self.models.further[PROBED]
        return {name: digest([states, probed, described(own)]) for name, own in self.by_table.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeModel(AbstractProbing):
    """Probes a model of a study, trained or not, for the tasks of the section `probing`."""

    kind = "probe"
    named = "probe {self.subject.label}"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ProbeModel]":
        """One stage for every measured model; controls that are equal for many objectives run one after another."""
        if not models.plan.probing.on:
            return []
        trained = [stage.recipe for stage in before if isinstance(stage, Train)]
        subjects = measured_subjects(models, trained)
        return behind_each_other([cls(models=models, subject=each) for each in subjects])

    @property
    def estimate(self) -> float:
        return 0.05 * len(self.models.plan.probing.tasks)

    def depends(self) -> list[Any]:
        return ["probe", self.subject.name, self.table_keys()]

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        return measures_by_table(probing_measures(self.models.plan.probing))
