"""The checkpoints of a series: examine the files of each, and measure it as `analyze` would measure its folder."""

import json
import math
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, Failure, PassOptions, agree, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, UserError, current_display, sealed_folder, use_display
from infoflow.models import Model, SequenceLosses, concatenate_losses, sequence_losses
from infoflow.results import Subject
from infoflow.studies._data import at_most
from infoflow.studies._given import AnalyzeOptions, GivenModel, family_of
from infoflow.studies._measures import measures_by_table
from infoflow.studies._study_facts import without_notes
from infoflow.studies._workbench import Part, Schemas, Workbench
from infoflow.studies.stages._measure import MEASURED, LoadedOnce, MeasureGiven, described
from infoflow.studies.stages._stage import AbstractStage
from infoflow.training import Clock, over_training

from ..measures import Ahead, SuiteCheckpoint, Weight, weigh

WEIGHED = "weighed"
_DONE = "checkpoints"  # stage that records which tables belong to a checkpoint
_VERSION = 1  # increase when checkpoints are weighed differently
_SKETCH = "sketch.npy"
_LONGEST = 200  # characters of a fault
_SENTENCES = {"causal-lm": 128, "masked-lm": 16}  # sentences for the loss; a masked LM runs once for each token


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighCheckpoint(AbstractStage):
    """What the checks of a series need from one checkpoint, and its loss; its files are read once.

    An unreadable file is a result too.
    """

    kind = "weigh"
    named = "weigh {self.series} {self.checkpoint.name}"
    checkpoint: SuiteCheckpoint
    series: str
    bench: Workbench
    options: AnalyzeOptions
    corpus: Corpus
    keep_downloads: bool = False

    def depends(self) -> list[Any]:
        asked = self.options
        languages = [one for one in (asked.source_language, asked.target_language, asked.prefix) if one]
        options = [asked.tokenizer, asked.max_length, *([languages] if languages else [])]
        return ["weigh", _VERSION, self.checkpoint.place.identity(), self.corpus.digest, options]

    def is_done(self) -> bool:
        return agree(self.bench.done(WEIGHED, self.key))

    def run(self) -> dict[str, Any]:
        with self.checkpoint.place.opened(self.keep_downloads) as folder:
            self.look(folder)
        return {}

    def look(self, folder: Path) -> None:
        """Weigh the checkpoint, currently stored in `folder`, unless that is done."""
        if self.is_done():
            return
        facts, sketch = self._facts(folder)
        if is_first():
            with sealed_folder(self.bench.path(WEIGHED, self.key)) as target:
                np.save(target / _SKETCH, sketch)
                (target / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        wait_for_all()

    @property
    def facts(self) -> dict[str, Any]:
        """`weight`, `fault`, and the model's `task`, `family`, `parameters`, `loss` and `loss_error`."""
        return self.bench.read_facts(WEIGHED, self.key)

    @property
    def sketch(self) -> np.ndarray:
        return np.load(self.bench.path(WEIGHED, self.key) / _SKETCH, mmap_mode="r")

    def _facts(self, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
        try:
            weight, sketch = weigh(folder)
        except UserError as error:
            return {"weight": None, "fault": _told(error, folder), **_NO_MODEL}, np.zeros(0, dtype=np.float32)
        return {"weight": weight.to_json(), **self._of_model(folder, weight)}, sketch

    def _of_model(self, folder: Path, weight: Weight) -> dict[str, Any]:
        """Facts that need the whole model; a checkpoint with non-finite numbers is not loaded."""
        if weight.tensors.not_finite:
            return {"fault": "", **_NO_MODEL}
        try:
            with use_display(SilentDisplay()), warnings.catch_warnings(action="ignore"):  # measuring reports it again
                model = GivenModel(source=str(folder), name=self.checkpoint.name, trained=True).load(self.options)
        except UserError as error:
            return {"fault": _told(error, folder), **_NO_MODEL}
        loss, spread = sample_loss(model, self.corpus, self.options.max_length)
        return {
            "fault": "",
            "task": model.task,
            "family": family_of(model),
            "parameters": sum(parameter.numel() for parameter in model.module.parameters()),
            "loss": None if math.isnan(loss) else loss,
            "loss_error": None if math.isnan(spread) else spread,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureSuiteCheckpoint(AbstractStage):
    """One checkpoint, fetched if needed, then weighed and measured while it is available.

    `MeasureGiven` does the work, so its rows are bit for bit those of an analysis of its folder.
    """

    kind = "measure"
    named = "measure {self._name}"
    weighing: WeighCheckpoint
    passes: PassOptions
    measures: Sequence[AbstractMeasure]
    loaded: LoadedOnce[SuiteCheckpoint] | None = None  # references for comparison
    ahead: Ahead | None = None
    tells: bool = True  # False: another checkpoint of its series reported the same notes

    def depends(self) -> list[Any]:
        return ["checkpoint", self.weighing.key, described(self.measures), self.passes.key]

    def is_done(self) -> bool:
        if not agree(self.weighing.is_done() and self.weighing.bench.done(_DONE, self.key)):
            return False
        return agree(all(self.weighing.bench.done(MEASURED, key) for key in self._keys().values()))

    def run(self) -> dict[str, Any]:
        weighing = self.weighing
        place = weighing.checkpoint.place
        with self.ahead.opened(place) if self.ahead else place.opened(weighing.keep_downloads) as folder:
            weighing.look(folder)
            keys: dict[str, str] = {}
            if weighing.facts["fault"] or weighing.facts["task"] == "":
                current_display().warn(f"{weighing.checkpoint.name} cannot be measured: {weighing.facts['fault']}")
            else:
                given = GivenModel(source=str(folder), name=self._name, trained=True)
                with nullcontext() if self.tells else without_notes():
                    stage = MeasureGiven.of(
                        given, weighing.options, self.passes, weighing.corpus, self.measures, weighing.bench
                    )
                    keys = stage.table_keys()
                    try:
                        stage.run()
                    finally:
                        if self.loaded:
                            self.loaded.clear()
        weighing.bench.remove(_DONE, self.key)
        weighing.bench.facts(_DONE, self.key, lambda: {"tables": keys})
        return {"failures": len(self.failures())}

    @property
    def _name(self) -> str:
        return f"{self.weighing.series} {self.weighing.checkpoint.name}"

    def _keys(self) -> dict[str, str]:
        """Keys of its tables, known once its weights were read."""
        return self.weighing.bench.read_facts(_DONE, self.key)["tables"]

    def rows(self, subject: Subject, clock: Clock) -> Part:
        """Its tables over training, for a checkpoint with these weights."""
        stored = self.weighing.bench.read_each(MEASURED, self._keys())
        keys = {**subject.keys(), **clock.columns()}
        named = {measure.name: over_training(measure.table).name for measure in self.measures}
        return {named[name]: frame.assign(**keys) for name, frame in stored.items()}

    def schemas(self) -> Schemas:
        found = [over_training(writing[0].table) for writing in measures_by_table(self.measures).values()]
        return {schema.name: schema for schema in found}

    def failures(self) -> list[Failure]:
        return self.weighing.bench.failures(MEASURED, self._keys())


_NO_MODEL: dict[str, Any] = {"task": "", "family": "", "parameters": 0, "loss": None, "loss_error": None}


def sample_loss(model: Model, corpus: Corpus, max_length: int) -> tuple[float, float]:
    """Nats per token on a few sentences, equal for all checkpoints, and the standard error; NaN if none is scored.

    For a masked LM, the pseudo-likelihood.
    """
    if model.task not in _SENTENCES or model.tokenizer is None:
        return math.nan, math.nan
    longest = min(max_length, model.max_tokens or max_length)
    parts: list[SequenceLosses] = []
    for sentence in at_most(corpus, _SENTENCES[model.task]):
        ids = model.tokenizer(sentence.text, truncation=True, max_length=longest, return_tensors="pt")["input_ids"]
        if ids.shape[1] > 1:
            parts.append(sequence_losses(model, ids.to(model.device)))
    if not parts:
        return math.nan, math.nan
    losses = concatenate_losses(parts)
    sums, counts = losses.sums.double().cpu(), losses.counts.double().cpu()
    residuals = sums - losses.mean * counts
    return losses.mean, float(torch.sqrt((residuals**2).sum()) / counts.sum())


def _told(error: UserError, folder: Path) -> str:
    """The first line, with only the name of the checkpoint's folder."""
    text = str(error).split("\n")[0].replace(f"{folder}/", "").replace(str(folder), folder.name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
