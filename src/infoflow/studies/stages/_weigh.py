"""Look into the files of a checkpoint: what checks of its series need to know, and its loss on the sentences."""

import json
import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.corpus import Corpus
from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, UserError, digest, sealed_folder, use_display
from infoflow.models import Model, SequenceLosses, concatenate_losses, sequence_losses
from infoflow.over_training import SuiteCheckpoint, Weight, weigh

from .._data import at_most
from .._given import AnalyzeOptions, GivenModel, family_of
from .._workbench import Workbench
from ._stage import AbstractStage

WEIGHED = "weighed"
_VERSION = 1  # raise when a checkpoint is weighed in another way
_SKETCH = "sketch.npy"
_LONGEST = 200  # characters of a fault
_SENTENCES = {"causal-lm": 128, "masked-lm": 16}  # whose loss is taken; a masked LM runs once for each token


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighCheckpoint(AbstractStage):
    """One checkpoint's files, read once; a file that cannot be read is a result too."""

    kind = "weigh"
    checkpoint: SuiteCheckpoint
    series: str
    bench: Workbench
    options: AnalyzeOptions
    corpus: Corpus
    keep_downloads: bool = False

    @cached_property
    def key(self) -> str:
        options = [self.options.tokenizer, self.options.max_length]
        return digest(["weigh", _VERSION, self.checkpoint.place.identity(), self.corpus.digest, options])

    @property
    def label(self) -> str:
        return f"weigh {self.series} {self.checkpoint.name}"

    def is_done(self) -> bool:
        return agree(self.bench.done(WEIGHED, self.key))

    def run(self) -> dict[str, Any]:
        with self.checkpoint.place.opened(self.keep_downloads) as folder:
            self.look(folder)
        return {}

    def look(self, folder: Path) -> None:
        """Weigh the checkpoint, which lies in `folder` for now, unless that is done."""
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
        """`weight`, `fault`, and of the model `task`, `family`, `parameters`, `loss` and `loss_error`."""
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
        """What takes the whole model; a checkpoint whose numbers are none is not loaded."""
        if weight.tensors.not_finite:
            return {"fault": "", **_NO_MODEL}
        try:
            with use_display(SilentDisplay()), warnings.catch_warnings(action="ignore"):  # measuring tells it again
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


_NO_MODEL: dict[str, Any] = {"task": "", "family": "", "parameters": 0, "loss": None, "loss_error": None}


def sample_loss(model: Model, corpus: Corpus, max_length: int) -> tuple[float, float]:
    """Nats per token on a few sentences, the same at each checkpoint, and its standard error; NaN where none is scored.

    Of a masked LM its pseudo-likelihood.
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
    """The first line, with the name of the checkpoint's folder alone."""
    text = str(error).split("\n")[0].replace(f"{folder}/", "").replace(str(folder), folder.name)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
