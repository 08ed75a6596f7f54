"""How a model is measured: each table has its own key, so that a new measure leaves the others unchanged."""

import shutil
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import (
    AbstractMeasure,
    Failure,
    Measured,
    PairMeasure,
    SampleKey,
    TokenSample,
    agree,
    collect,
    describe_measure,
    is_first,
    wait_for_all,
)
from infoflow.foundation import scratch_folder
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import TASK_SCORES, Subject

from .._scores import content_ids_of, task_scores
from .._workbench import Computed, Part, Schemas
from ._stage import AbstractMeasuring, OfModels

Key = TypeVar("Key", bound=Hashable)
MEASURED = "measured"
_SAMPLES = "samples"
_COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractMeasureStage(AbstractMeasuring):
    """One model, trained or not, with its token sample for comparisons with others."""

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
        """The pair measures that use its sample."""
        return []

    def is_done(self) -> bool:
        return super().is_done() and agree(self.has_sample())

    def run(self) -> dict[str, Any]:
        """Compute missing tables; the model also runs if its sample is missing."""
        if not agree(self.has_sample()) and not self.cache.missing(self.stored, self.table_keys()):
            self.measure([], with_sample=True)
        return super().run()

    def make(self, names: list[str]) -> Computed:
        return self.measure(names, with_sample=not agree(self.has_sample()))

    # -- the sample ---------------------------------------------------------------------------------------------------

    @property
    def samples_folder(self) -> Path:
        return self.cache.path(_SAMPLES, self.samples_key())

    def has_sample(self) -> bool:
        """Whether the sample exists or no remaining comparison needs it."""
        if not self.pair_measures or (self.samples_folder / _COMPLETE).exists():
            return True
        return all(self.cache.done("compared", key) for key in self.compared_in)

    def sample(self) -> dict[SampleKey, TokenSample]:
        """The clean sample of the stack that reads the text (the first process's, if there are several)."""
        paths = sorted(path for path in self.samples_folder.rglob("*-clean") if path.is_dir())
        return {(path.name.removesuffix("-clean"), "clean"): TokenSample.load(path) for path in reversed(paths)}

    def fresh_samples_folder(self) -> Path:
        """The folder of the sample, cleared of what an earlier call left."""
        if is_first():
            shutil.rmtree(self.samples_folder, ignore_errors=True)
        wait_for_all()
        return self.samples_folder

    def keep_sample(self) -> None:
        """Mark the sample as complete."""
        self.samples_folder.mkdir(parents=True, exist_ok=True)
        (self.samples_folder / _COMPLETE).touch()


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractStudyMeasure(OfModels, AbstractMeasureStage):
    """A model of a study, on sentences that no model was trained on."""

    @cached_property
    @abstractmethod
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        """The measures by the name of the table that each writes."""

    @property
    @abstractmethod
    def corpus(self) -> Corpus:
        """The sentences."""

    @property
    def objective(self) -> AbstractObjective:
        return self.models.objective(self.subject.recipe)

    def plain_schemas(self) -> Schemas:
        return {name: writing[0].table for name, writing in self.by_table.items()}

    def measure(self, names: Sequence[str], with_sample: bool) -> Computed:
        return self.measured(self.models.load(self.subject), names, with_sample)

    def measured(self, model: Model, names: Sequence[str], with_sample: bool) -> Computed:
        """Results of the measures for the model."""
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
        options = plan.passes(decoder_states=False, corruption=self.objective)
        several = sum(map(len, self.by_table.values())) > 1
        run = partial(collect, model, self.corpus, measures, options=options, ranks_from=data.train)
        if not keep_sample:
            with scratch_folder() as temporary:
                return run(folder=temporary, keep_going=several)
        measured = run(folder=self.fresh_samples_folder(), keep_going=several)
        self.keep_sample()
        return measured


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractScoredMeasure(AbstractStudyMeasure):
    """A model of a study that is also scored."""

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
    """Dependencies of the measures' results besides the states."""
    return [describe_measure(each) for each in measures]


class LoadedOnce(Generic[Key]):
    """Models that a checkpoint is compared with: `load` loads each once for all its measures, until `clear`."""

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
