"""Measure one model: each of its tables is keyed by itself, so that a new measure leaves the others as they are."""

import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import (
    AbstractMeasure,
    Failure,
    Measured,
    PairMeasure,
    PassOptions,
    SampleKey,
    TokenSample,
    agree,
    collect,
    is_first,
    wait_for_all,
)
from infoflow.foundation import current_display, digest
from infoflow.heads import ABLATION_TRANSFER
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._measures import measures_by_table, pair_measures, standard_measures
from .._probing import probing_tables
from .._scores import TASK_SCORES, bleu_scores, content_ids_of, rouge_scores, task_scores
from .._study_models import StudyModels
from .._transfer import transfer, transfer_keys
from .._workbench import Computed, Part, Schemas, Workbench
from ._pairs import described, model_pairs, pair_key
from ._stage import AbstractStage, firsts
from ._train import Train, train_stage_key

MEASURED = "measured"
_SAMPLES = "samples"
_COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractMeasureStage(AbstractStage):
    """One model, trained or not, and its sample of tokens for comparisons with others."""

    kind = "measure"
    subject: Subject
    bench: Workbench
    compared_in: Sequence[str] = ()  # parts of the comparisons that need its sample

    @property
    def label(self) -> str:
        return f"measure {self.subject.label}"

    @cached_property
    def key(self) -> str:
        return digest(["measure", self.subject.name, self.table_keys(), self.samples_key()])

    @abstractmethod
    def table_keys(self) -> dict[str, str]:
        """What each table depends on."""

    @abstractmethod
    def samples_key(self) -> str:
        """What the sample depends on."""

    @abstractmethod
    def measured_schemas(self) -> Schemas:
        """Schemas without the columns that name the model."""

    @abstractmethod
    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        """The tables called `names`, and the sample where it is asked for."""

    @property
    def pair_measures(self) -> list[PairMeasure]:
        """What its sample is for."""
        return []

    def is_done(self) -> bool:
        keys = self.table_keys()
        return agree(all(self.bench.done(MEASURED, key) for key in keys.values()) and self.has_sample())

    def run(self) -> dict[str, Any]:
        """Tables that are there are not computed again; the model still runs where its sample is missing."""
        keys = self.table_keys()
        if not agree(self.has_sample()) and not self.bench.missing(MEASURED, keys):
            self.measure([], with_sample=True)
        self.bench.each_table(MEASURED, keys, self.measured_schemas(), self._measure)
        return {"failures": len(self.failures())}

    def _measure(self, names: list[str]) -> Computed:
        return self.measure(names, with_sample=not agree(self.has_sample()))

    def tables(self) -> Part:
        stored = self.bench.read_each(MEASURED, self.table_keys())
        return {name: frame.assign(**self.subject.keys()) for name, frame in stored.items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {name: schema.with_keys(*KEYS) for name, schema in self.measured_schemas().items()}

    def failures(self) -> list[Failure]:
        """Measures that failed on this model; their tables are not there, and the stage is not done."""
        return self.bench.failures(MEASURED, self.table_keys())

    # -- the sample ---------------------------------------------------------------------------------------------------

    @property
    def samples_folder(self) -> Path:
        return self.bench.path(_SAMPLES, self.samples_key())

    def has_sample(self) -> bool:
        """Whether the sample is there, or no comparison is left that needs it."""
        if not self.pair_measures or (self.samples_folder / _COMPLETE).exists():
            return True
        return all(self.bench.done("compared", key) for key in self.compared_in)

    def sample(self) -> dict[SampleKey, TokenSample]:
        """The clean sample of the stack that reads the text (of several processes, the first one's)."""
        paths = sorted(path for path in self.samples_folder.rglob("*-clean") if path.is_dir())
        return {(path.name.removesuffix("-clean"), "clean"): TokenSample.load(path) for path in reversed(paths)}

    def fresh_samples_folder(self) -> Path:
        """The folder of the sample, without what an earlier call left there."""
        if is_first():
            shutil.rmtree(self.samples_folder, ignore_errors=True)
        wait_for_all()
        return self.samples_folder

    def keep_sample(self) -> None:
        """Note that the sample is whole."""
        self.samples_folder.mkdir(parents=True, exist_ok=True)
        (self.samples_folder / _COMPLETE).touch()


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStudyMeasure(AbstractMeasureStage):
    """A model of a study, on sentences that no model was trained on."""

    models: StudyModels

    @cached_property
    @abstractmethod
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        """What is measured, by the name of the table that it writes."""

    @property
    @abstractmethod
    def corpus(self) -> Corpus:
        """The sentences."""

    @property
    def objective(self) -> AbstractObjective:
        return self.models.objective(self.subject.recipe)

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        return self.measured(self.models.load(self.subject), names, with_sample)

    def measured(self, model: Model, names: Sequence[str], with_sample: bool) -> Computed:
        """What measures say of the model."""
        measures = [measure for name in names for measure in self.by_table.get(name, [])]
        tables: Part = {}
        failures: tuple[Failure, ...] = ()
        if with_sample:
            measures += self.pair_measures
        if any(measure.why_not(model) is None for measure in measures):
            measured = self._pass(model, measures, with_sample)
            tables, failures = dict(measured.tables), measured.failures
        return Computed(tables=tables, failures=failures)

    def _pass(self, model: Model, measures: list[AbstractMeasure], keep_sample: bool) -> Measured:
        plan, data = self.models.plan.analysis, self.models.data
        options = PassOptions(tokens_per_batch=plan.tokens_per_batch, decoder_states=False, corruption=self.objective)
        several = sum(map(len, self.by_table.values())) > 1
        run = partial(collect, model, self.corpus, measures, options=options, ranks_from=data.train)
        if not keep_sample:
            with TemporaryDirectory(prefix="infoflow-") as temporary:
                return run(folder=Path(temporary), keep_going=several)
        measured = run(folder=self.fresh_samples_folder(), keep_going=several)
        self.keep_sample()
        return measured


StudyStage = TypeVar("StudyStage", bound=AbstractStudyMeasure)


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractScoredMeasure(AbstractStudyMeasure):
    """A model of a study, scored too."""

    @abstractmethod
    def scores(self, model: Model) -> pd.DataFrame:
        """How well the model does what it was trained for."""

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        model = self.models.load(self.subject)
        found = self.measured(model, names, with_sample)
        tables = dict(found.tables)
        if ABLATION_TRANSFER.name in names:
            tables |= transfer(model, self.models.data, self.models.plan.analysis, self.objective)
        if TASK_SCORES.name in names:
            tables[TASK_SCORES.name] = self.scores(model)
        return Computed(tables=tables, failures=found.failures)

    def scored(self, model: Model, parts: Mapping[str, Corpus]) -> pd.DataFrame:
        """Rows of the table `task_scores`, but BLEU, on parts of the corpus by name."""
        recipe = self.subject.recipe
        training, whole = self.models.training_data(recipe), self.models.whole(self.subject, model)
        frames = [
            task_scores(whole, self.objective, held_out, content_ids_of(held_out.source, part), training, split)
            for split, part in parts.items()
            for held_out in [self.models.held_out(recipe, part)]
        ]
        return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureModel(AbstractScoredMeasure):
    """A model of a study, on the sentences that no model was trained on: scored and measured."""

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureModel]":
        subjects = measured_subjects(models, [stage.recipe for stage in before if isinstance(stage, Train)])
        parts: dict[Subject, list[str]] = {subject: [] for subject in subjects}
        for first, second in model_pairs(models.plan, subjects):
            part = pair_key(models, first, second)
            parts[first].append(part)
            parts[second].append(part)
        return behind_each_other(
            [
                cls(models=models, subject=subject, bench=models.bench, compared_in=tuple(parts[subject]))
                for subject in subjects
            ]
        )

    @property
    def estimate(self) -> float:
        """A masked LM is measured as it reads and as it was trained."""
        relative = {"translation": 0.7, "causal-lm": 0.4, "masked-lm": 0.8}
        return relative.get(self.subject.recipe.objective.name, 0.5)

    @property
    def corpus(self) -> Corpus:
        return self.models.data.analysed

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        probed = probing_tables(self.models.plan.probing)  # written by `ProbeModel`, on its sentences
        standard = standard_measures(self.models.plan.analysis)
        return measures_by_table([measure for measure in standard if measure.name not in probed])

    @property
    def pair_measures(self) -> list[PairMeasure]:
        return pair_measures(self.models.plan.analysis)

    def table_keys(self) -> dict[str, str]:
        plan, states = self.models.plan.analysis, self.models.states_key(self.subject)
        of = [self.models.train_key(self.subject.recipe), self.subject.trained, plan.sentences]
        scores = digest([digest(of), TASK_SCORES.version, plan.bleu_sentences, plan.beams])
        keys = {name: digest([states, described(writing)]) for name, writing in self.by_table.items()}
        return {TASK_SCORES.name: scores} | keys | transfer_keys(states, self.models.other_domain, plan)

    def samples_key(self) -> str:
        return digest([self.models.states_key(self.subject), described(self.pair_measures)])

    def measured_schemas(self) -> Schemas:
        own = {schema.name: schema for schema in (TASK_SCORES, ABLATION_TRANSFER)}
        return own | {name: writing[0].table for name, writing in self.by_table.items()}

    def scores(self, model: Model) -> pd.DataFrame:
        plan, data = self.models.plan.analysis, self.models.data
        reads = self.models.plan.reads(self.objective)
        test = data.analysed if reads == "sentence" else data.test  # repeated sentences belong to their text
        frames = [self.scored(model, {"validation": data.validation, "test": test})]
        if self.objective.needs_translation and self.subject.trained:
            current_display().note(f"Translating {plan.bleu_sentences} sentences with {model.name}.")
            frames.append(bleu_scores(model, data.test, plan.bleu_sentences, plan.beams, "test"))
        if self.objective.can_write and self.subject.trained:
            held_out = self.models.held_out(self.subject.recipe, test)
            current_display().note(f"Writing {plan.bleu_sentences} texts with {model.name}.")
            ids = content_ids_of(held_out.source, test)
            frames.append(rouge_scores(model, self.objective, held_out, ids, plan.bleu_sentences, plan.beams, "test"))
        return pd.concat(frames, ignore_index=True)


def measured_subjects(models: StudyModels, recipes: Sequence[Recipe]) -> list[Subject]:
    """Controls, then trained models; a variant of an objective begins as the plain one, so it has no control."""
    trained = [Subject(recipe=recipe) for recipe in recipes]
    plain = [one for one in trained if not one.recipe.objective.variant]
    controls = [one.before_training() for one in plain] if models.plan.analysis.untrained else []
    return [*controls, *trained]


def behind_each_other(stages: Sequence[StudyStage]) -> list[StudyStage]:
    """Trained models behind their training; of controls of equal states the first, then the others, which find all but
    scores."""
    found: list[StudyStage] = []
    for stage, first in zip(stages, firsts(stages, lambda one: one.models.states_key(one.subject)), strict=True):
        models, subject = stage.models, stage.subject
        before = train_stage_key(models, subject.recipe) if subject.trained else first and first.key
        found.append(replace(stage, needs=(before,)) if before else stage)
    return found
