"""How a model is measured, with a key for each table; also for external models, at once or in shards."""

import dataclasses
import shutil
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from infoflow import flow
from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PairMeasure, PassOptions
from infoflow.foundation import UserError, current_display, digest, scratch_folder
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import GIVEN_SCORES, TASK_SCORES, Subject

from .._external import AnalyzeOptions, ExternalModel, external_scores
from .._measures import measures_by_table, pair_measures, requested_measures, wanted_at
from .._result_cache import Computed, Part, ResultCache, Schemas
from .._scores import content_ids_of, task_scores
from ._stage import AbstractMeasuring, OfModels

# Each table of a model has its own key, so that a new measure leaves the other tables unchanged.
Key = TypeVar("Key", bound=Hashable)
MEASURED = "measured"
_SAMPLES = "samples"
_COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractMeasureStage(AbstractMeasuring):
    """Measures one model, trained or untrained, and keeps its token sample for comparisons with other models."""

    kind = "measure"
    named = "measure {self.subject.label}"
    stored = MEASURED
    subject: Subject
    compared_in: Sequence[str] = ()  # parts of the comparisons that need its sample

    def depends(self) -> list[Any]:
        return ["measure", self.subject.name, self.table_keys(), self.samples_key()]

    def columns(self) -> Mapping[str, Any]:
        return self.subject.keys()

    def samples_key(self) -> str:
        """Key of the sample; empty if no comparison uses one."""
        return ""

    @abstractmethod
    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        """The tables called `names`, and the sample if requested."""

    @property
    def pair_measures(self) -> list[PairMeasure]:
        return []

    def is_done(self) -> bool:
        return super().is_done() and flow.agree(self.has_sample())

    def run(self) -> dict[str, Any]:
        """Compute the missing tables; the model also runs if only its sample is missing."""
        if not flow.agree(self.has_sample()) and not self.cache.missing(self.stored, self.table_keys()):
            self.measure([], with_sample=True)
        return super().run()

    def make(self, names: list[str]) -> Computed:
        return self.measure(names, with_sample=not flow.agree(self.has_sample()))

    # -- the sample ---------------------------------------------------------------------------------------------------

    @property
    def samples_folder(self) -> Path:
        return self.cache.path(_SAMPLES, self.samples_key())

    def has_sample(self) -> bool:
        if not self.pair_measures or (self.samples_folder / _COMPLETE).exists():
            return True
        return all(self.cache.done("compared", key) for key in self.compared_in)

    def sample(self) -> dict[flow.SampleKey, flow.TokenSample]:
        """The sample of clean text, from the stack that reads it (the first process's, if there are several)."""
        paths = sorted(path for path in self.samples_folder.rglob("*-clean") if path.is_dir())
        return {(path.name.removesuffix("-clean"), "clean"): flow.TokenSample.load(path) for path in reversed(paths)}

    def fresh_samples_folder(self) -> Path:
        """The folder of the sample, without leftovers of earlier calls."""
        if flow.is_first():
            shutil.rmtree(self.samples_folder, ignore_errors=True)
        flow.wait_for_all()
        return self.samples_folder

    def keep_sample(self) -> None:
        self.samples_folder.mkdir(parents=True, exist_ok=True)
        (self.samples_folder / _COMPLETE).touch()


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStudyMeasure(OfModels, AbstractMeasureStage):
    @cached_property
    @abstractmethod
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        """The measures by the name of the table that each writes."""

    @property
    @abstractmethod
    def corpus(self) -> Corpus:
        """The sentences on which the model is measured."""

    @property
    def objective(self) -> AbstractObjective:
        return self.models.objective(self.subject.recipe)

    @property
    def is_control(self) -> bool:
        return not self.subject.trained

    def plain_schemas(self) -> Schemas:
        return {name: writing[0].table for name, writing in self.by_table.items()}

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        return self.measured(self.models.load(self.subject), names, with_sample)

    def measured(self, model: Model, names: Sequence[str], with_sample: bool, corpus: Corpus | None = None) -> Computed:
        """Results of the measures for the model, on `corpus` if given, otherwise on the stage's own sentences."""
        measures = [measure for name in names for measure in self.by_table.get(name, [])]
        tables: Part = {}
        failures: tuple[flow.Failure, ...] = ()
        if with_sample:
            measures += self.pair_measures
        if any(measure.why_not(model) is None for measure in measures):
            measured = self._pass(model, corpus or self.corpus, measures, with_sample)
            tables, failures = dict(measured.tables), measured.failures
        return Computed(tables=tables, failures=failures)

    def _pass(self, model: Model, corpus: Corpus, measures: list[AbstractMeasure], keep_sample: bool) -> flow.Measured:
        plan, data = self.models.plan.analysis, self.models.data
        options = plan.passes(decoder_states=False, corruption=self.objective)
        several = sum(map(len, self.by_table.values())) > 1
        run = partial(flow.collect, model, corpus, measures, options=options, ranks_from=data.train)
        if not keep_sample:
            with scratch_folder() as temporary:
                return run(folder=temporary, keep_going=several)
        measured = run(folder=self.fresh_samples_folder(), keep_going=several)
        self.keep_sample()
        return measured


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractScoredMeasure(AbstractStudyMeasure):
    @abstractmethod
    def scores(self, model: Model) -> pd.DataFrame:
        """How well the model performs its training task."""

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        model = self.models.load(self.subject)
        found = self.measured(model, names, with_sample)
        tables = dict(found.tables)
        if TASK_SCORES.name in names:
            tables[TASK_SCORES.name] = self.scores(model)
        return Computed(tables=tables, failures=found.failures)

    def scored(self, model: Model, parts: Mapping[str, Corpus]) -> pd.DataFrame:
        """Rows of the table `task_scores` without BLEU, on parts of the corpus by name."""
        recipe = self.subject.recipe
        training, whole = self.models.training_data(recipe), self.models.whole(self.subject, model)
        frames = [
            task_scores(whole, self.objective, held_out, content_ids_of(held_out.source, part), training, split)
            for split, part in parts.items()
            for held_out in [self.models.held_out(recipe, part)]
        ]
        return pd.concat(frames, ignore_index=True)


def described(measures: Sequence[AbstractMeasure]) -> list:
    """What the measures' results depend on in addition to the states."""
    return [flow.describe_measure(each) for each in measures]


class LoadedOnce(Generic[Key]):
    """The models with which a checkpoint is compared; each is loaded once for all measures and kept until `clear`."""

    def __init__(self, load: Callable[[Key], Model]) -> None:
        self._load = load
        self._held: dict[Key, Model] = {}

    def named(self, keys: Mapping[str, Key]) -> Callable[[], dict[str, Model]]:
        """A loader for the models of these keys, under these names."""
        return lambda: {name: self[key] for name, key in keys.items()}

    def __getitem__(self, key: Key) -> Model:
        if key not in self._held:
            self._held[key] = self._load(key)
        return self._held[key]

    def clear(self) -> None:
        self._held.clear()


SHARDS = "shards"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureExternal(AbstractMeasureStage):
    """Measures one external model, as it is or with random weights, in memory only while it is needed.

    With `merging`, the tables come from shards of other calls.
    """

    guess = 1.0
    bench: ResultCache
    external: ExternalModel
    options: AnalyzeOptions
    passes: PassOptions
    corpus: Corpus
    measures: Sequence[AbstractMeasure]
    parameters: int
    model_keys: dict[str, str]  # keys of the model's tables
    pass_key: str
    merging: bool = False

    @classmethod
    def of(
        cls,
        external: ExternalModel,
        options: AnalyzeOptions,
        passes: PassOptions,
        corpus: Corpus,
        measures: Sequence[AbstractMeasure],
        bench: ResultCache,
        merging: bool = False,
    ) -> "MeasureExternal":
        """Build the stage; the model is loaded for this and stays loaded until `release`."""
        model = external.load(options)
        width = max(stack.width for stack in model.anatomy.stacks)
        measures, left_out = wanted_at(width, measures, options)
        for reason, names in left_out.items() if external.trained else ():
            current_display().note(
                f"{' and '.join(names)} of {model.name}: left out, because {reason}. --only computes them."
            )
        passes = dataclasses.replace(passes, corruption=external.corruption)
        scored = bool(requested_measures(options)) or GIVEN_SCORES.name in options.only
        stage = cls(
            subject=external.subject(model),
            bench=bench,
            external=external,
            options=options,
            passes=passes,
            corpus=corpus,
            measures=measures,
            parameters=sum(parameter.numel() for parameter in model.module.parameters()),
            model_keys={
                name: flow.job_key(model, corpus, writing, passes)
                for name, writing in measures_by_table(measures).items()
            }
            | ({GIVEN_SCORES.name: _scores_key(model, corpus, passes)} if scored else {}),
            pass_key=flow.job_key(model, corpus, measures, passes),
            merging=merging,
        )
        stage.__dict__["model"] = model  # equals what `model` would load
        return stage

    @cached_property
    def model(self) -> Model:
        return self.external.load(self.options)

    def release(self) -> None:
        self.__dict__.pop("model", None)

    def needed_for(self, parts: Sequence[str]) -> "MeasureExternal":
        """The same stage, which additionally keeps a sample for these parts of comparisons."""
        if not parts:
            return self
        stage = dataclasses.replace(self, compared_in=tuple(parts))
        stage.__dict__.update({name: value for name, value in self.__dict__.items() if name == "model"})
        return stage

    @property
    def pair_measures(self) -> list[PairMeasure]:
        return [] if self.options.only else pair_measures(self.options.measures)

    def table_keys(self) -> dict[str, str]:
        return self.model_keys

    def samples_key(self) -> str:
        return self.pass_key

    @property
    def cache(self) -> ResultCache:
        return self.bench

    def plain_schemas(self) -> Schemas:
        return {GIVEN_SCORES.name: GIVEN_SCORES} | {measure.name: measure.table for measure in self.measures}

    def run(self) -> dict:
        try:
            return super().run()
        finally:
            self.release()

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        scores = {}
        if GIVEN_SCORES.name in names:  # before the measures, so that a failing measure cannot prevent the report
            scores = {GIVEN_SCORES.name: external_scores(self.model, self.corpus, self.options.max_length)}
            names = [name for name in names if name != GIVEN_SCORES.name]
        if self.merging and names:
            merged = self._merged(with_sample)
            return Computed(tables=scores | dict(merged.tables), failures=merged.failures)
        if not names and not with_sample:
            return Computed(tables=scores)
        measures = [measure for measure in self.measures if measure.name in names]
        for_pairs = self.pair_measures if with_sample else []
        # The error of a single requested measure is the command's error; among several measures, each fails alone.
        several = len(self.measures) > 1
        folder = self.fresh_samples_folder()
        measured = flow.collect(
            self.model, self.corpus, [*measures, *for_pairs], folder, self.passes, keep_going=several
        )
        if with_sample:
            self.keep_sample()
        return Computed(tables=scores | dict(measured.tables), failures=measured.failures)

    def run_shard(self, index: int, num: int) -> None:
        """Run every `num`-th batch, and store its sums for `merge`."""
        out = self.bench.path(SHARDS, self.pass_key) / f"{index}-of-{num}"
        if not out.exists():
            flow.measure_shard(self.model, self.corpus, self.measures, index, num, out, self.passes)
        self.release()

    def _merged(self, with_sample: bool) -> Computed:
        shards = shards_in(self.bench.path(SHARDS, self.pass_key))
        if not shards:
            raise UserError(
                f"No shard matches {self.external.name} with this corpus and these settings. The model, the corpus "
                "or infoflow has changed: run the shards again."
            )
        folder = self.fresh_samples_folder()
        merged = flow.merge_shards(self.model, self.corpus, self.measures, shards, folder, self.passes)
        if with_sample:  # no shard has a sample of all sentences
            self.measure([], with_sample=True)
        return Computed(tables=merged.tables, failures=merged.failures)


def _scores_key(model: Model, corpus: Corpus, passes: PassOptions) -> str:
    return digest([GIVEN_SCORES.name, GIVEN_SCORES.version, flow.job_key(model, corpus, [], passes)])


def shards_in(folder: Path) -> list[Path]:
    """Finished shards under `folder`; a killed call leaves only a hidden folder."""
    return sorted(path for path in folder.rglob("*-of-*") if path.is_dir() and path.name[0].isdigit())
