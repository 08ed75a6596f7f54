"""Measure a model of a study at an update that its training kept: the same sentences and sizes at every one."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import digest
from infoflow.models import Model
from infoflow.over_training import (
    CONVERGENCE,
    EmbeddingChange,
    LayerConvergence,
    PredictionDivergence,
    SeedDivergence,
    WeightChange,
    checkpoint_steps,
    over_training,
)
from infoflow.results import Recipe, Subject, TableSchema

from .._data import at_most
from .._measures import OF_CHECKPOINTS, OF_PROBES, OF_SEEDS, checkpoint_tables, measures_by_table, named_measures
from .._scores import TASK_SCORES
from .._study_models import StudyModels
from .._workbench import Computed, Part, Schemas
from ._keep import Keep
from ._loaded_once import LoadedOnce
from ._measure import MEASURED, AbstractScoredMeasure
from ._pairs import described
from ._stage import AbstractStage
from ._train import Train

FINAL, PREVIOUS, INITIAL, OTHER_SEED = "final", "previous", "initial", "other-seed"
_SEED = "seed"  # the next one, at the same update
COMPARED_WITH: Mapping[type[WeightChange | PredictionDivergence | EmbeddingChange], tuple[str, ...]] = {
    WeightChange: (INITIAL, PREVIOUS, FINAL),
    PredictionDivergence: (FINAL,),
    EmbeddingChange: (FINAL,),
}
"""Measures of a checkpoint beside `LayerConvergence`, and which others of its training they look at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureCheckpoint(AbstractScoredMeasure):
    """One model at one kept update.

    Its rows are those of the model alone: what checkpoints share is which sentences, tokens and settings. A checkpoint
    more or less changes no other's numbers, but for those that are compared with the one before them. The last update
    is measured too, in the same sizes.
    """

    kind = "checkpoint"
    references: Mapping[str, Subject]  # that its layers are compared with
    others: Mapping[str, Subject]  # of the same training, that its weights are compared with
    seeds: Mapping[str, Subject]  # another seed at the same update, where a table is about both

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureCheckpoint]":
        """All kept updates of all models, each behind its training and those of its references."""
        if not models.plan.checkpoints.on:
            return []
        trained = {stage.recipe: stage.key for stage in before if isinstance(stage, Train)}
        kept = {stage.recipe: stage.key for stage in before if isinstance(stage, Keep)}
        stages = []
        for recipe, key in trained.items():
            steps = models.wanted(recipe)
            for at, update in enumerate(steps):
                every = _references(models, recipe, steps, at)
                references = {name: every[name] for name in models.plan.checkpoints.references if name in every}
                seeds = {trained[one.recipe] for one in references.values() if one.recipe != recipe}
                beside = _beside(models, recipe, update)
                seeds |= {of[one.recipe] for one in beside.values() for of in (trained, kept)}
                stages.append(
                    cls(
                        models=models,
                        subject=Subject(recipe=recipe, update=update),
                        bench=models.bench,
                        references=references,
                        others={name: one for name, one in every.items() if name != OTHER_SEED},
                        seeds=beside,
                        needs=(key, kept[recipe], *seeds),
                    )
                )
        return stages

    @property
    def estimate(self) -> float:
        return 0.1

    @cached_property
    def key(self) -> str:
        return digest(["checkpoint", self.subject.name, self.subject.update, self.table_keys()])

    @property
    def corpus(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.checkpoints.sentences)

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        plan = self.models.plan.checkpoints
        sizes = {"occurrences": plan.occurrences, "distance_occurrences": plan.occurrences}
        heavy = self.subject.update in heavy_updates(self.models, self.subject.recipe)
        wanted = checkpoint_tables(self.models.plan, heavy)
        names = [name for name in wanted if name not in (*OF_CHECKPOINTS, *OF_SEEDS, *OF_PROBES)]
        measures = named_measures(dataclasses.replace(self.models.plan.analysis, **sizes, tables=()), names)
        if CONVERGENCE.name in wanted:
            load, key = self._loaded.named(self.references), self._keys_of(self.references)
            measures.append(LayerConvergence(load, key, plan.occurrences))
        for kind, names in COMPARED_WITH.items():
            if kind.table.name in wanted:
                named = {name: self.others[name] for name in names if name in self.others}
                measures.append(kind(self._loaded.named(named), self._keys_of(named)))
        if self.seeds:
            measures.append(SeedDivergence(self._loaded.named(self.seeds), self._keys_of(self.seeds)))
        return measures_by_table(measures)

    def table_keys(self) -> dict[str, str]:
        plan = self.models.plan.checkpoints
        states = digest([self.models.states_key(self.subject), plan.sentences])
        scores = digest([states, TASK_SCORES.version, self.models.train_key(self.subject.recipe)])
        return {TASK_SCORES.name: scores} | {
            name: digest([states, described(writing)]) for name, writing in self.by_table.items()
        }

    def samples_key(self) -> str:
        return ""  # no comparison draws on its sample

    def measured_schemas(self) -> Schemas:
        return {TASK_SCORES.name: TASK_SCORES} | {name: own[0].table for name, own in self.by_table.items()}

    def scores(self, model: Model) -> pd.DataFrame:
        data = self.models.data
        sentences = self.models.plan.reads(self.objective) == "sentence"
        test = data.analysed if sentences else data.test
        return self.scored(model, {"test": at_most(test, self.models.plan.checkpoints.sentences)})

    def rows(self) -> Part:
        """By the name of the measure's table its rows, with the columns that name model and checkpoint."""
        clock = self.models.clock(self.subject.recipe, self.subject.update or 0)
        keys = {**self.subject.keys(), **clock.columns()}
        stored = self.bench.read_each(MEASURED, self.table_keys())
        return {name: frame.assign(**keys) for name, frame in stored.items()}

    def tables(self) -> Part:
        """Convergence is left to the course of all checkpoints."""
        own = self.measured_schemas()
        return {over_training(own[name]).name: frame for name, frame in self.rows().items() if name != CONVERGENCE.name}

    def schemas(self) -> dict[str, TableSchema]:
        every = [over_training(each) for name, each in self.measured_schemas().items() if name != CONVERGENCE.name]
        return {schema.name: schema for schema in every}

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        """Checkpoints that it is compared with are loaded once each, and held until all is measured."""
        try:
            return super().measure(names, with_sample)
        finally:
            self._loaded.clear()

    @cached_property
    def _loaded(self) -> LoadedOnce[Subject]:
        return LoadedOnce(self.models.load)

    def _keys_of(self, subjects: Mapping[str, Subject]) -> list[str]:
        return [f"{name} {self.models.states_key(subject)}" for name, subject in subjects.items()]


def _references(models: StudyModels, recipe: Recipe, steps: Sequence[int], at: int) -> dict[str, Subject]:
    """What this checkpoint can be compared with: the first has none before it, one seed no other."""
    seeds = [seed for seed in models.plan.seeds if seed != recipe.seed]
    there = {
        FINAL: Subject(recipe=recipe),
        PREVIOUS: Subject(recipe=recipe, update=steps[at - 1]) if at else None,
        INITIAL: Subject(recipe=recipe, update=0) if at else None,
        OTHER_SEED: Subject(recipe=dataclasses.replace(recipe, seed=seeds[0])) if seeds else None,
    }
    return {name: found for name, found in there.items() if found is not None}


def _beside(models: StudyModels, recipe: Recipe, update: int) -> dict[str, Subject]:
    """The next seed at the same update, where `OF_SEEDS` are asked for at it; each pair of three seeds comes once."""
    heavy = update in heavy_updates(models, recipe)
    seeds = models.plan.seeds
    if len(seeds) < 2 or not {*OF_SEEDS} & {*checkpoint_tables(models.plan, heavy)}:
        return {}
    following = seeds[(seeds.index(recipe.seed) + 1) % len(seeds)]
    return {_SEED: Subject(recipe=dataclasses.replace(recipe, seed=following), update=update)}


def heavy_updates(models: StudyModels, recipe: Recipe) -> set[int]:
    """Of the kept updates those next to the ones of `heavy_steps`."""
    kept = np.array(models.wanted(recipe))
    wanted = checkpoint_steps(models.plan.checkpoints.heavy_steps, int(kept[-1]))
    return {int(kept[np.argmin(np.abs(kept - step))]) for step in wanted}
