"""Measure and probe the models of a study at kept updates, and follow each model over its training."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import digest
from infoflow.models import Model
from infoflow.results import TASK_SCORES, Recipe, Subject
from infoflow.studies._data import at_most
from infoflow.studies._measures import checkpoint_tables, measures_by_table, named_measures
from infoflow.studies._result_cache import Computed, Part, Schemas, stacked
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._keep import Keep
from infoflow.studies.stages._measure import AbstractScoredMeasure, AbstractStudyMeasure, LoadedOnce, described
from infoflow.studies.stages._stage import AbstractStage, AbstractTableStage, OfModels
from infoflow.studies.stages._train import Train
from infoflow.subjects.probing.measures import OF_CHECKPOINTS as OF_PROBES
from infoflow.subjects.probing.stages import AbstractProbing, probing_measures
from infoflow.training import checkpoint_steps, over_training

from ..measures import (
    AMONG_SEEDS,
    CONVERGENCE,
    COURSE_TABLES,
    OF_CHECKPOINTS,
    EmbeddingChange,
    LayerConvergence,
    PredictionDivergence,
    SeedDivergence,
    WeightChange,
    course_tables,
)

FINAL, PREVIOUS, INITIAL, OTHER_SEED = "final", "previous", "initial", "other-seed"
_SEED = "seed"  # the next seed at the same update
_CONVERGENCE = CONVERGENCE.at_checkpoints
COMPARED_WITH: Mapping[type[WeightChange | PredictionDivergence | EmbeddingChange], tuple[str, ...]] = {
    WeightChange: (INITIAL, PREVIOUS, FINAL),
    PredictionDivergence: (FINAL,),
    EmbeddingChange: (FINAL,),
}
"""Measures of a checkpoint besides `LayerConvergence`, and the checkpoints that each compares it with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractCheckpoint(AbstractStudyMeasure):
    """A model at a kept update; its rows identify the position in training."""

    @property
    def is_control(self) -> bool:
        return False  # at update 0 it is the beginning of a training

    def columns(self) -> dict[str, Any]:
        clock = self.models.clock(self.subject.recipe, self.subject.update or 0)
        return {**self.subject.keys(), **clock.columns()}

    def schemas(self) -> Schemas:
        every = [over_training(schema) for schema in self.plain_schemas().values()]
        return {schema.name: schema for schema in every}

    def tables(self) -> Part:
        schemas = self.plain_schemas()
        return {over_training(schemas[name]).name: frame for name, frame in super().tables().items()}

    @property
    def is_heavy(self) -> bool:
        """Whether the tables of `checkpoints.heavy` are computed at this update."""
        return self.subject.update in heavy_updates(self.models, self.subject.recipe)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureCheckpoint(AbstractCheckpoint, AbstractScoredMeasure):
    """One model at one kept update.

    Its rows depend only on that model; all checkpoints share sentences, tokens and settings. Adding or removing a
    checkpoint does not change the numbers of others, except comparisons with the preceding checkpoint. The last update
    is measured too, with the same sample sizes.
    """

    kind = "checkpoint"
    guess = 0.1
    references: Mapping[str, Subject]  # reference for its layers
    others: Mapping[str, Subject]  # checkpoints of the same training, references for its weights
    seeds: Mapping[str, Subject]  # another seed at the same update, if a table compares them

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureCheckpoint]":
        """A stage for each kept update of each model, after the training runs of the model and of its references."""
        if not models.plan.checkpoints.on:
            return []
        trained, kept = _trained_and_kept(before)
        stages = []
        for recipe, key in trained.items():
            steps = models.wanted(recipe)
            for at, update in enumerate(steps):
                every = _references(models, recipe, steps, at)
                references = {name: every[name] for name in models.plan.checkpoints.references if name in every}
                seeds = {trained[one.recipe] for one in references.values() if one.recipe != recipe}
                next_seed = _next_seed(models, recipe, update)
                seeds |= {of[one.recipe] for one in next_seed.values() for of in (trained, kept)}
                stages.append(
                    cls(
                        models=models,
                        subject=Subject(recipe=recipe, update=update),
                        references=references,
                        others={name: one for name, one in every.items() if name != OTHER_SEED},
                        seeds=next_seed,
                        needs=(key, kept[recipe], *seeds),
                    )
                )
        return stages

    def depends(self) -> list[Any]:
        return ["checkpoint", self.subject.name, self.subject.update, self.table_keys()]

    @property
    def corpus(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.checkpoints.sentences)

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        plan = self.models.plan.checkpoints
        sizes = {"occurrences": plan.occurrences, "distance_occurrences": plan.occurrences}
        sizes["usable_occurrences"] = max(plan.occurrences, 500)
        wanted = checkpoint_tables(self.models.plan, self.is_heavy)
        names = [name for name in wanted if name not in (*OF_CHECKPOINTS, *OF_PROBES)]
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

    def plain_schemas(self) -> Schemas:
        return {TASK_SCORES.name: TASK_SCORES} | super().plain_schemas()

    def scores(self, model: Model) -> pd.DataFrame:
        data = self.models.data
        sentences = self.models.plan.reads(self.objective) == "sentence"
        test = data.analysed if sentences else data.test
        return self.scored(model, {"test": at_most(test, self.models.plan.checkpoints.sentences)})

    def rows(self) -> Part:
        """Rows by the measure's table name, with columns that identify model and checkpoint."""
        return self._with_columns(self.cache.read_each(self.stored, self.table_keys()))

    def tables(self) -> Part:
        """The tables without convergence, which `Course` computes over all checkpoints."""
        return {name: frame for name, frame in super().tables().items() if name != _CONVERGENCE}

    def schemas(self) -> Schemas:
        return {name: schema for name, schema in super().schemas().items() if name != _CONVERGENCE}

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        """Each reference checkpoint is loaded once and held until everything is measured."""
        try:
            return super().measure(names, with_sample)
        finally:
            self._loaded.clear()

    @cached_property
    def _loaded(self) -> LoadedOnce[Subject]:
        return LoadedOnce(self.models.load)

    def _keys_of(self, subjects: Mapping[str, Subject]) -> list[str]:
        return [f"{name} {self.models.states_key(subject)}" for name, subject in subjects.items()]


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeCheckpoint(AbstractCheckpoint, AbstractProbing):
    """A model at a kept update, probed for the tasks of the section `probing`, on the same sentences.

    Its tables are those of `OF_PROBES` that the plan's checkpoints name in `light` or, at heavy updates, in `heavy`.
    """

    kind = "probe checkpoint"
    named = "probe {self.subject.label}"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ProbeCheckpoint]":
        """A stage for each update with requested probes, after its training."""
        if not models.plan.checkpoints.on:
            return []
        trained, kept = _trained_and_kept(before)
        stages = [
            cls(models=models, subject=Subject(recipe=recipe, update=step), needs=(key, kept[recipe]))
            for recipe, key in trained.items()
            for step in models.wanted(recipe)
        ]
        return [stage for stage in stages if stage.by_table]

    @property
    def estimate(self) -> float:
        return 0.05 * max(len(self.models.plan.probing.tasks), 1)

    def depends(self) -> list[Any]:
        return ["probe checkpoint", self.subject.name, self.subject.update, self.table_keys()]

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        wanted = {*OF_PROBES} & {*checkpoint_tables(self.models.plan, self.is_heavy)}
        every = measures_by_table(probing_measures(self.models.plan.probing)) if wanted else {}
        return {name: own for name, own in every.items() if name in wanted}


@dataclass(frozen=True, kw_only=True, eq=False)
class Course(OfModels, AbstractTableStage):
    """One model over its training, from checkpoint tables: settling layers, roles of heads, coinciding changes."""

    kind = "course"
    named = "follow {self.recipe.name} over its training"
    stored = "courses"
    makes = COURSE_TABLES
    guess = 0.02
    runs_models = False
    recipe: Recipe
    checkpoints: Sequence[MeasureCheckpoint]

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Course]":
        measured: dict[Recipe, list[MeasureCheckpoint]] = {}
        for stage in before:
            if isinstance(stage, MeasureCheckpoint):
                measured.setdefault(stage.subject.recipe, []).append(stage)
        return [
            cls(models=models, recipe=recipe, checkpoints=stages, needs=tuple(stage.key for stage in stages))
            for recipe, stages in measured.items()
        ]

    def depends(self) -> list[Any]:
        versions = [[schema.name, schema.version] for schema in COURSE_TABLES]
        return ["course", self.recipe.name, versions, [stage.key for stage in self.checkpoints]]

    def make(self) -> Part:
        rows = stacked(stage.rows() for stage in self.checkpoints)
        return course_tables(rows, float(self.models.plan.training.warmup_updates))


def _trained_and_kept(before: Sequence[AbstractStage]) -> tuple[dict[Recipe, str], dict[Recipe, str]]:
    """The keys of the training runs, and the keys of the stages that keep their checkpoints, by recipe."""
    trained = {stage.recipe: stage.key for stage in before if isinstance(stage, Train)}
    kept = {stage.recipe: stage.key for stage in before if isinstance(stage, Keep)}
    return trained, kept


def _references(models: StudyModels, recipe: Recipe, steps: Sequence[int], at: int) -> dict[str, Subject]:
    """The references available to a checkpoint: the first has no predecessor, and a single seed has no other seed."""
    seeds = [seed for seed in models.plan.seeds if seed != recipe.seed]
    there = {
        FINAL: Subject(recipe=recipe),
        PREVIOUS: Subject(recipe=recipe, update=steps[at - 1]) if at else None,
        INITIAL: Subject(recipe=recipe, update=0) if at else None,
        OTHER_SEED: Subject(recipe=dataclasses.replace(recipe, seed=seeds[0])) if seeds else None,
    }
    return {name: found for name, found in there.items() if found is not None}


def _next_seed(models: StudyModels, recipe: Recipe, update: int) -> dict[str, Subject]:
    """The next seed at the same update, if `AMONG_SEEDS` are requested there; each pair of three seeds occurs once."""
    heavy = update in heavy_updates(models, recipe)
    seeds = models.plan.seeds
    if len(seeds) < 2 or not {*AMONG_SEEDS} & {*checkpoint_tables(models.plan, heavy)}:
        return {}
    following = seeds[(seeds.index(recipe.seed) + 1) % len(seeds)]
    return {_SEED: Subject(recipe=dataclasses.replace(recipe, seed=following), update=update)}


def heavy_updates(models: StudyModels, recipe: Recipe) -> set[int]:
    """The kept updates nearest to `heavy_steps`."""
    kept = np.array(models.wanted(recipe))
    wanted = checkpoint_steps(models.plan.checkpoints.heavy_steps, int(kept[-1]))
    return {int(kept[np.argmin(np.abs(kept - step))]) for step in wanted}
