"""Tuned models: plain Hugging Face folders with a `task.json`, and the files of their tuning."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError, atomic_write, digest, file_digest, hash64_array, named_fields, read_object
from infoflow.models import Model, evaluating, load_model
from infoflow.training import ExampleRows

from ._body import mixed_body
from ._task import AbstractTask, Predictions, Score
from ._task_parts import task_reader

_BATCH_TOKENS = 8192
_LONGEST = 300  # maximum characters of a text in a table
_TEXTS = ("question", "text", "second")


def predictions_of(
    task: AbstractTask, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary
) -> Predictions:
    """The module's predictions on a part; its mode is restored."""
    with evaluating(module):
        return task.predict(module, rows, corpus, vocabulary, _BATCH_TOKENS)


def answer_rows(task: AbstractTask, predictions: Predictions, corpus: Corpus, most: int) -> list[dict[str, Any]]:
    """Rows of TASK_ANSWERS for at most `most` examples, which are chosen by content and so the same for every model."""
    hashes = hash64_array(("answers",), corpus.content_ids)
    chosen = np.sort(np.argsort(hashes, kind="stable")[:most])
    if not len(chosen):
        return []
    right = task.right(predictions, corpus)
    part = corpus.select(chosen)
    columns = [list(part.column(name)) for name in _TEXTS if name in part.columns]
    return [
        {
            "example": int(row),
            "text": _shortened(" | ".join(one for one in texts if one)),
            "wanted": _shortened(predictions.wanted[row]),
            "said": _shortened(predictions.said[row]),
            "probability": float(predictions.values[row]),
            "right": bool(right[row]),
        }
        for row, texts in zip(chosen.tolist(), zip(*columns, strict=True), strict=True)
    ]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# Tuned models: plain Hugging Face folders with a `task.json`.

TASK_FILE = "task.json"
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TunedModel:
    """One tuned model on disk."""

    folder: Path
    task: AbstractTask
    seed: int
    learning_rate: float
    updates: int
    max_length: int
    facts: Mapping[str, Any]
    """Contents of task.json.

    It has `recipe`, `metric`, `examples`, `dev` and `test` with the main metric, and `rates` with the dev metric of
    each learning rate that was tried with the first seed (-2e9 if training diverged). For the method `mix`, it also has
    `mix` with the `shares` of the embeddings and every layer, and their `scale`.
    """

    def load(self, device: str = "auto") -> Model:
        """The model with its head; after the method `mix`, the head reads the mix of layers used in tuning."""
        model = load_model(self.folder, device=device)
        if mix := self.facts.get("mix"):
            mixed_body(model.module, mix["shares"], mix["scale"])
            model.module.to(model.device)
        return model

    def score(self, corpus: Corpus, train: Corpus, device: str = "auto") -> list[Score]:
        """The task's metrics on a labelled corpus, the main one first; the baseline guess may use `train`."""
        model = self.load(device)
        reader = task_reader(model, self.task, self.max_length)
        predictions = predictions_of(self.task, model.module, reader.read(corpus), corpus, reader.vocabulary)
        return self.task.scores(predictions, corpus, train)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tuned:
    """Result of `tune`: one model per seed."""

    task: AbstractTask
    models: tuple[TunedModel, ...]
    train: Corpus
    """Training data of the models: all of it or a subset, with shuffled labels if they are the control."""
    scores: pd.DataFrame
    """The table TASK_SCORES, for dev and test."""
    answers: pd.DataFrame
    """TASK_ANSWERS."""


def load_tuned(folder: Path | str) -> TunedModel:
    """A tuned model as saved by `tune`."""
    folder = Path(folder)
    try:
        facts = read_object(folder / TASK_FILE)
        if facts["version"] > _VERSION:
            raise UserError(f"{folder} was written by a newer infoflow. Update yours: git pull and make install.")
        return _tuned_model(folder, facts)
    except _FAULTS as error:
        raise UserError(
            f"A tuned model is a folder with weights and {TASK_FILE}, such as seed-0 in the method's folder. "
            f"{folder} is not one, or its {TASK_FILE} is damaged. Name a folder that infoflow tune wrote."
        ) from error


def _tuned_model(folder: Path, facts: Mapping[str, Any]) -> TunedModel:
    return TunedModel(
        folder=folder,
        task=task_from(facts["task"]),
        seed=int(facts["seed"]),
        learning_rate=float(facts["learning_rate"]),
        updates=int(facts["updates"]),
        max_length=int(facts["recipe"]["max_length"]),
        facts=facts,
    )


def write_facts(folder: Path, task: AbstractTask, facts: Mapping[str, Any]) -> None:
    """Write `task.json` into a model's folder."""
    values = {"version": _VERSION, "task": task_to(task), **facts}
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (folder / TASK_FILE).write_text(text + "\n", encoding="utf-8")


def task_to(task: AbstractTask) -> dict[str, Any]:
    """A task as JSON."""
    return json.loads(json.dumps({"class": type(task).__name__, **named_fields(task)}))


def task_from(values: Mapping[str, Any]) -> AbstractTask:
    """The task that `task_to` wrote."""
    kinds = {kind.__name__: kind for kind in _kinds(AbstractTask)}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kinds[fields.pop("class")](**fields)


def _kinds(kind: type) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


# Files of a tuning: settings and rates of all seeds, scores and answers of one seed.

KEY_FILE, RESULTS_FILE = "tuning.json", "results.json"
Rows = list[dict[str, Any]]
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def write_key(home: Path, key: dict[str, Any], rates: dict[str, float]) -> None:
    """Write to a method's folder the settings that all seeds share, and the dev metric of each learning rate."""
    with atomic_write(home / KEY_FILE) as temporary:
        temporary.write_text(json.dumps({"key": key, "rates": rates}, indent=2) + "\n", encoding="utf-8")


def read_key(home: Path) -> dict[str, Any] | None:
    """The content written by `write_key`, `{"key": ..., "rates": ...}`; None if nothing exists yet."""
    path = home / KEY_FILE
    if not path.exists():
        return None
    with suppress(*_FAULTS):
        saved = read_object(path)
        rates = {str(float(rate)): float(value) for rate, value in saved["rates"].items()}
        if isinstance(saved["key"], dict) and all(math.isfinite(value) for value in rates.values()):
            return {"key": saved["key"], "rates": rates}
    raise UserError(
        f"{path} is damaged, so the settings of these models are unknown.\n"
        f"Choose another output folder, or remove {home} to tune again."
    )


def write_results(folder: Path, scores: Rows, answers: Rows) -> None:
    """Write scores and answers next to a seed's task.json, with a digest over all three."""
    rows = json.loads(json.dumps({"scores": scores, "answers": answers}))
    (folder / RESULTS_FILE).write_text(json.dumps({**rows, "digest": _digest(rows, folder)}), encoding="utf-8")


def read_results(folder: Path) -> dict[str, Rows]:
    """Scores and answers, as written by `write_results`."""
    path = folder / RESULTS_FILE
    with suppress(*_FAULTS):
        found = read_object(path)
        rows = {name: [dict(row) for row in found[name]] for name in ("scores", "answers")}
        wanted = _digest(rows, folder)
        if found.get("digest", wanted) == wanted:  # older tunings have no digest
            return rows
    raise UserError(
        f"{path}, or {TASK_FILE} in the same folder, is damaged or missing.\n"
        f"Remove {folder}, and run the command again: only this seed is trained again."
    )


def _digest(rows: dict[str, Rows], folder: Path) -> str:
    return digest([rows["scores"], rows["answers"], file_digest(folder / TASK_FILE)])
