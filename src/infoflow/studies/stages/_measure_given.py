"""Measure a pretrained or external model, whole or in shards."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from infoflow.corpus import Corpus
from infoflow.flow import (
    AbstractMeasure,
    PairMeasure,
    PassOptions,
    collect,
    job_key,
    measure_shard,
    merge_shards,
)
from infoflow.foundation import UserError, digest
from infoflow.models import Model
from infoflow.results import GIVEN_SCORES

from .._given import AnalyzeOptions, GivenModel
from .._given_scores import given_scores
from .._measures import measures_by_table, pair_measures
from .._workbench import Computed, Schemas, Workbench
from ._measure import AbstractMeasureStage

SHARDS = "shards"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureGiven(AbstractMeasureStage):
    """One model, as it is or with random weights, held in memory only while needed.

    `merging`: its tables come from shards of other calls.
    """

    bench: Workbench
    given: GivenModel
    options: AnalyzeOptions
    passes: PassOptions
    corpus: Corpus
    measures: Sequence[AbstractMeasure]
    parameters: int
    model_keys: dict[str, str]  # of its tables
    pass_key: str
    merging: bool = False

    @classmethod
    def of(
        cls,
        given: GivenModel,
        options: AnalyzeOptions,
        passes: PassOptions,
        corpus: Corpus,
        measures: Sequence[AbstractMeasure],
        bench: Workbench,
        merging: bool = False,
    ) -> "MeasureGiven":
        """The stage; the model is loaded for it and stays loaded until `release`."""
        model = given.load(options)
        passes = dataclasses.replace(passes, corruption=given.corruption)
        stage = cls(
            subject=given.subject(model),
            bench=bench,
            given=given,
            options=options,
            passes=passes,
            corpus=corpus,
            measures=measures,
            parameters=sum(parameter.numel() for parameter in model.module.parameters()),
            model_keys={
                name: job_key(model, corpus, writing, passes) for name, writing in measures_by_table(measures).items()
            }
            | ({GIVEN_SCORES.name: _scores_key(model, corpus, passes)} if options.probing.on else {}),
            pass_key=job_key(model, corpus, measures, passes),
            merging=merging,
        )
        stage.__dict__["model"] = model  # equals what `model` would load
        return stage

    @cached_property
    def model(self) -> Model:
        return self.given.load(self.options)

    def release(self) -> None:
        """Release the model; it is loaded again on demand."""
        self.__dict__.pop("model", None)

    def needed_for(self, parts: Sequence[str]) -> "MeasureGiven":
        """The same stage, which keeps a sample for these parts of comparisons."""
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
    def cache(self) -> Workbench:
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
        if GIVEN_SCORES.name in names:  # before the measures, so that a failing measure cannot suppress the report
            scores = {GIVEN_SCORES.name: given_scores(self.model, self.corpus, self.options.max_length)}
            names = [name for name in names if name != GIVEN_SCORES.name]
        if self.merging and names:
            merged = self._merged(with_sample)
            return Computed(tables=scores | dict(merged.tables), failures=merged.failures)
        if not names and not with_sample:
            return Computed(tables=scores)
        measures = [measure for measure in self.measures if measure.name in names]
        for_pairs = self.pair_measures if with_sample else []
        # The error of a single requested measure is the command's error; among several, each fails alone.
        several = len(self.measures) > 1
        folder = self.fresh_samples_folder()
        measured = collect(self.model, self.corpus, [*measures, *for_pairs], folder, self.passes, keep_going=several)
        if with_sample:
            self.keep_sample()
        return Computed(tables=scores | dict(measured.tables), failures=measured.failures)

    def run_shard(self, index: int, num: int) -> None:
        """Run every `num`-th batch, and store its sums for `merge`."""
        out = self.bench.path(SHARDS, self.pass_key) / f"{index}-of-{num}"
        if not out.exists():
            measure_shard(self.model, self.corpus, self.measures, index, num, out, self.passes)
        self.release()

    def _merged(self, with_sample: bool) -> Computed:
        """The model's tables from its shards.

        Raises:
            UserError: The shards for this model, corpus and settings are missing or incomplete.
        """
        shards = shards_in(self.bench.path(SHARDS, self.pass_key))
        if not shards:
            raise UserError(
                f"No shard matches {self.given.name} with this corpus and these settings. The model, the corpus "
                "or infoflow has changed: run the shards again."
            )
        folder = self.fresh_samples_folder()
        merged = merge_shards(self.model, self.corpus, self.measures, shards, folder, self.passes)
        if with_sample:  # no shard has a sample of all sentences
            self.measure([], with_sample=True)
        return Computed(tables=merged.tables, failures=merged.failures)


def _scores_key(model: Model, corpus: Corpus, passes: PassOptions) -> str:
    return digest([GIVEN_SCORES.name, GIVEN_SCORES.version, job_key(model, corpus, [], passes)])


def shards_in(folder: Path) -> list[Path]:
    """Finished shards under `folder`; a killed one leaves a hidden folder."""
    return sorted(path for path in folder.rglob("*-of-*") if path.is_dir() and path.name[0].isdigit())
