"""The checkpoints of a series: their files, their measurement as by `analyze`, and the tables of all of them."""

import json
import math
import shutil
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, Failure, PassOptions, agree, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, UserError, atomic_folder, current_display, sealed_folder, use_display
from infoflow.models import Model, SequenceLosses, concatenate_losses, sequence_losses
from infoflow.results import KEYS, Recipe, RunFolder, Spec, Subject
from infoflow.studies._data import at_most
from infoflow.studies._external import AnalyzeOptions, ExternalModel, family_of
from infoflow.studies._measures import measures_by_table
from infoflow.studies._result_cache import Part, ResultCache, Schemas
from infoflow.studies._run import without_notes
from infoflow.studies.stages._measure import MEASURED, LoadedOnce, MeasureExternal, described
from infoflow.studies.stages._stage import AbstractStage
from infoflow.training import CHECKPOINTS, CLOCKS, NOT_THE_SAME, Clock, over_training

from ..measures import (
    CHECKPOINT_CHECKS,
    Ahead,
    CheckpointSeries,
    SeriesChecks,
    SuiteCheckpoint,
    WeighedCheckpoint,
    Weight,
    check_series,
    weigh,
)

WEIGHED = "weighed"
_DONE = "checkpoints"  # stage that records which tables belong to a checkpoint
_VERSION = 1  # increase when checkpoints are weighed differently
_SKETCH = "sketch.npy"
_LONGEST = 200  # maximum characters of a fault
_SENTENCES = {"causal-lm": 128, "masked-lm": 16}  # sentences for the loss; a masked LM runs once for each token


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighCheckpoint(AbstractStage):
    """What the checks need from a checkpoint, and its loss; an unreadable file is a result too."""

    kind = "weigh"
    named = "weigh {self.series} {self.checkpoint.name}"
    checkpoint: SuiteCheckpoint
    series: str
    bench: ResultCache
    options: AnalyzeOptions
    corpus: Corpus
    keep_downloads: bool = False

    def depends(self) -> list[Any]:
        given = self.options
        languages = [one for one in (given.source_language, given.target_language, given.prefix) if one]
        options = [given.tokenizer, given.max_length, *([languages] if languages else [])]
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
            return {"weight": None, "fault": _fault_text(error, folder), **_NO_MODEL}, np.zeros(0, dtype=np.float32)
        return {"weight": weight.to_json(), **self._of_model(folder, weight)}, sketch

    def _of_model(self, folder: Path, weight: Weight) -> dict[str, Any]:
        """Facts that need the whole model; a checkpoint with non-finite numbers is not loaded."""
        if weight.tensors.not_finite:
            return {"fault": "", **_NO_MODEL}
        try:
            with use_display(SilentDisplay()), warnings.catch_warnings(action="ignore"):  # measuring reports it again
                model = ExternalModel(source=str(folder), name=self.checkpoint.name, trained=True).load(self.options)
        except UserError as error:
            return {"fault": _fault_text(error, folder), **_NO_MODEL}
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

    `MeasureExternal` does the work, so its rows are bit for bit those of an analysis of its folder.
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
                external = ExternalModel(source=str(folder), name=self._name, trained=True)
                with nullcontext() if self.tells else without_notes():
                    stage = MeasureExternal.of(
                        external, weighing.options, self.passes, weighing.corpus, self.measures, weighing.bench
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
        """Keys of the checkpoint's tables, which are known once its weights have been read."""
        return self.weighing.bench.read_facts(_DONE, self.key)["tables"]

    def rows(self, subject: Subject, clock: Clock) -> Part:
        """The tables over training of a checkpoint with these weights."""
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
    """Nats per token on a few sentences, the same for all checkpoints, and its standard error; NaN if none is scored.

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


def _fault_text(error: UserError, folder: Path) -> str:
    """The first line, with only the name of the checkpoint's folder."""
    text = str(error).split("\n")[0].replace(f"{folder}/", "").replace(str(folder), folder.name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# Tables about the checkpoints of a series, and the columns that identify each checkpoint in every table.

CHECKPOINT_TABLES = {schema.name: schema.with_keys(*KEYS, *CLOCKS) for schema in (CHECKPOINTS, CHECKPOINT_CHECKS)}
"""`checkpoints` and `checkpoint_checks` with the columns that identify a row's checkpoint."""


def checked(series: CheckpointSeries, weighings: Sequence[WeighCheckpoint]) -> SeriesChecks:
    """Check results for a series whose files were all examined."""
    return check_series([_seen(series, one) for one in weighings], series.missing)


def _seen(series: CheckpointSeries, weighing: WeighCheckpoint) -> WeighedCheckpoint:
    checkpoint, facts = weighing.checkpoint, weighing.facts
    return WeighedCheckpoint(
        name=checkpoint.name,
        update=checkpoint.update,
        progress=checkpoint.update / max(1, series.updates),
        named=checkpoint.named,
        saved_at=checkpoint.state.step,
        by_hand=checkpoint.by_hand,
        files=checkpoint.place.weight_files(),
        weight=Weight.from_json(facts["weight"]) if facts["weight"] else None,
        fault=facts["fault"],
        sketch=weighing.sketch,
        loss=_number(facts["loss"]),
        loss_error=_number(facts["loss_error"]),
    )


def clocks(series: CheckpointSeries, checks: SeriesChecks) -> dict[str, Clock]:
    """Position of each checkpoint in the training, by its name."""
    times = {}
    for one in series.checkpoints:
        progress, same = one.update / max(1, series.updates), checks.same_as.get(one.name, NOT_THE_SAME)
        times[one.name] = Clock(update=one.update, tokens=one.tokens, progress=progress, same_as=same)
    return times


def subject_of(
    series: CheckpointSeries, measured: Sequence[WeighCheckpoint], one: WeighCheckpoint | None, update: int = 0
) -> Subject:
    """The model of a series at a checkpoint, or at an update without a checkpoint.

    If the checkpoint's own task and family are unknown, they are taken from any other checkpoint.
    """
    facts = [each.facts for each in measured if each is one] + [each.facts for each in measured]
    known = next((each for each in facts if each["task"]), {"task": "", "family": ""})
    recipe = Recipe(objective=Spec(known["task"]), architecture=Spec(known["family"]), seed=0)
    return Subject(recipe=recipe, update=update if one is None else one.checkpoint.update, given=series.name)


def series_rows(
    series: CheckpointSeries, measured: Sequence[WeighCheckpoint], checks: SeriesChecks, left_out: set[str]
) -> Part:
    """The rows of `checkpoints` and `checkpoint_checks`."""
    times, by_name = clocks(series, checks), {one.checkpoint.name: one for one in measured}
    checkpoints, rows = [], []
    for one in measured:
        keys = {**subject_of(series, measured, one).keys(), **times[one.checkpoint.name].columns()}
        checkpoints.append({**keys, **_facts(one), "skipped": math.nan, "excluded": one.checkpoint.name in left_out})
    for row in checks.rows:
        one = by_name.get(row.name)
        clock = times[row.name] if one else Clock(update=row.update, progress=row.update / max(1, series.updates))
        subject = subject_of(series, measured, one, row.update)
        found = {column.name: getattr(row, column.name) for column in CHECKPOINT_CHECKS.columns}
        rows.append({**subject.keys(), **clock.columns(), **found})
    names = CHECKPOINT_TABLES[CHECKPOINT_CHECKS.name].column_names
    return {CHECKPOINTS.name: pd.DataFrame(checkpoints), CHECKPOINT_CHECKS.name: pd.DataFrame(rows, columns=names)}


def _facts(one: WeighCheckpoint) -> dict[str, object]:
    place, state, facts = one.checkpoint.place, one.checkpoint.state, one.facts
    files = place.weight_files()
    return {
        "name": one.checkpoint.name,
        "revision": place.revision,
        "commit": place.commit,
        "sha256": " ".join(file.sha256 for file in files),
        "bytes": sum(file.bytes for file in files),
        "dtype": Weight.from_json(facts["weight"]).dtype if facts["weight"] else "",
        "lr": state.lr,
        "training_loss": state.training_loss,
        "validation_loss": state.validation_loss,
        "sample_loss": _number(facts["loss"]),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


# Several machines measure shares of the checkpoints of one training; merged, they form one run.

SHARD_KIND = "over-training-shard"


def of_shard(number: int, shard: tuple[int, int]) -> range:
    """Indices of a shard's stages: every n-th, which spreads early and late checkpoints."""
    part, parts = shard
    if not 0 <= part < parts:
        raise UserError(f"--shard must be i/n with 0 ≤ i < n. Got {part}/{parts}. Shards count from 0.")
    return range(part, number, parts)


def is_shard(folder: Path | str) -> bool:
    """Whether `infoflow over-training --shard` wrote the folder."""
    return RunFolder.existing(folder).read().get("kind") == SHARD_KIND


def gather_shards(folders: Sequence[Path | str], out: Path) -> dict[str, Any]:
    """Copy the results of each shard to `out/work`, named by what determines them; returns their common plan."""
    runs = [RunFolder.existing(folder) for folder in folders]
    manifests = [run.read() for run in runs]
    for run, manifest in zip(runs, manifests, strict=True):
        if manifest.get("kind") != SHARD_KIND:
            raise UserError(f"{run.path} was not written by `infoflow over-training --shard`.")
    first = manifests[0]
    for run, manifest in zip(runs, manifests, strict=True):
        for name, what in (("plan", "another command"), ("corpus", "other sentences")):
            if manifest.get(name) != first.get(name):
                raise UserError(
                    f"{run.path} was made with {what} than {runs[0].path}. Merge shards of the same command."
                )
    _check_complete([tuple(manifest["shard"]) for manifest in manifests])
    for run in runs:
        for source in sorted((run.path / "work").glob("*/*/")):  # named by what determines them
            target = out / "work" / source.relative_to(run.path / "work")
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(source, folder, dirs_exist_ok=True)
    return first["plan"]


def _check_complete(shards: Sequence[tuple[int, int]]) -> None:
    parts = {parts for _, parts in shards}
    if len(parts) > 1:
        raise UserError(
            f"The shards are parts of {' and of '.join(map(str, sorted(parts)))}. Merge shards of the same command."
        )
    numbers = [part for part, _ in shards]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"Shards must be distinct. Got {', '.join(map(str, sorted(numbers)))}.")
    (whole,) = parts
    if missing := sorted(set(range(whole)) - set(numbers)):
        raise UserError(
            f"Shards {', '.join(map(str, missing))} of {whole} are missing (counted from 0). Name all of them."
        )
