"""Training and scoring probes of all layers: the functions behind `Probe`, which also work on arrays."""

# N example, R set of labels, S seed

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int, Shaped

from infoflow.foundation import UserError, block_of, current_display, hash64_array

from ._batched import LabelledRows, ProbeGrid, ProbeSettings, train_probes
from ._features import ChosenRows, InputRows
from ._probe_scores import ProbePredictions, score_rows
from ._probed_task import PARTS, ExampleTypes, control_labels
from ._tasks import DEV_SHARE, MOST_CLASSES, TEST_SHARE


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuestionedPart(LabelledRows):
    """The examples of one part."""

    sentences: Int[np.ndarray, " example"]  # `Corpus.content_ids`, or any numbers that identify sentences
    types: Int[np.ndarray, " example"]

    def take(self, index: Int[np.ndarray, " chosen"]) -> "QuestionedPart":
        return QuestionedPart(
            rows=ChosenRows(self.rows, index),
            labels=self.labels[:, index],
            sentences=self.sentences[index],
            types=self.types[index],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeProblem:
    """Examples in three parts, and the label sets that their probes learn."""

    train: QuestionedPart
    dev: QuestionedPart
    test: QuestionedPart
    classes: int
    sets: Mapping[str, Sequence[int]]  # for "task" and "control": the row of `labels` that each seed learns

    def of_share(self, share: float, seed: int = 0) -> "ProbeProblem":
        """Keep this share of the training sentences (at least one), by hash; larger shares include smaller ones."""
        if share >= 1:
            return self
        every = np.unique(self.train.sentences)
        order = np.argsort(hash64_array(("probe-share", seed), every), kind="stable")
        chosen = every[order[: math.ceil(share * len(every))]]
        kept = np.flatnonzero(np.isin(self.train.sentences, chosen))
        return replace(self, train=self.train.take(kept))

    @property
    def seen(self) -> Bool[np.ndarray, " example"]:
        """Which test examples have a type that occurs in the training part."""
        return np.isin(self.test.types, self.train.types)


def probe_layers(
    x: InputRows,
    y: Int[np.ndarray, " label"],
    sentences: Int[np.ndarray, " sentence"],
    types: Shaped[np.ndarray, " type"] | None = None,
    *,
    settings: ProbeSettings | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    sizes: Sequence[float] = (1.0,),
    seed: int = 0,
) -> pd.DataFrame:
    """Scores of probes of each layer, with their controls: the table `probe_scores` for arrays.

    A hash splits the sentences: a fifth is the test part, a fifth is for early stopping, and the rest is for training.

    Args:
        x: States (example, layer, width); layer 0 is the embeddings.
        y: Labels 0..C−1.
        sentences: Sentence number of each example; the parts share no sentence, and intervals are over sentences.
        types: Word type of each example, as text or numbers; if set, the control task is added (`control_labels`).
        settings: Capacity and training; default: a linear probe.
        seeds: Seeds of the probes, and of the control's random labels.
        sizes: Shares of the training sentences to train on.
        seed: Seeds the split into parts.

    Returns:
        Rows by `layer`, `labels` ("task", "control"), `words` ("all", "seen", "unseen" types), `metric` ("accuracy",
        "macro_f1", "selectivity") and `share`, with `training`, `capacity`, the columns of an estimate, `seed_sd` and
        `seeds`. The baseline is the majority class.
    """
    _check(x, y, sentences, types, seeds)
    settings = settings or ProbeSettings()
    place = hash64_array(("probe-part", seed), sentences) / 2.0**64
    test, dev = place < TEST_SHARE, (place >= TEST_SHARE) & (place < TEST_SHARE + DEV_SHARE)
    parts = {"train": np.flatnonzero(~test & ~dev), "dev": np.flatnonzero(dev), "test": np.flatnonzero(test)}
    if empty := [name for name, index in parts.items() if len(index) == 0]:
        raise UserError(
            f"A probe needs sentences for the parts {', '.join(PARTS)}. {len(np.unique(sentences)):,} sentences leave "
            f"none for {empty[0]}. Give more."
        )
    problem = _array_problem(x, y, sentences, types, parts, seeds)
    found = [answered([problem], settings, seeds, share, seed) for share in sizes]
    return pd.DataFrame([row for one in found if one is not None for row in one.rows()])


def _check(x: InputRows, y: np.ndarray, sentences: np.ndarray, types: np.ndarray | None, seeds: Sequence[int]) -> None:
    lengths = [x.shape[0], len(y), len(sentences), *([] if types is None else [len(types)])]
    if len(set(lengths)) > 1:
        raise UserError(f"x, y, sentences and types must have the same length. Got {lengths}.")
    if len(seeds) == 0:
        raise UserError("A probe needs at least one seed. Got none.")
    check_classes(y)


def check_classes(labels: Int[np.ndarray, " example"]) -> None:
    """Check that a probe can learn the labels."""
    classes = len(np.unique(labels))
    if len(labels) and labels.min() < 0:
        raise UserError(f"Labels must be numbers from 0. Got {labels.min()}.")
    if classes < 2 or labels.max() >= MOST_CLASSES:
        most = int(labels.max()) + 1 if classes >= 2 else classes
        raise UserError(f"A probe needs 2 to {MOST_CLASSES:,} classes. Got {most:,}. Merge labels, or choose others.")


def _array_problem(
    x: InputRows,
    y: np.ndarray,
    sentences: np.ndarray,
    types: np.ndarray | None,
    parts: dict[str, np.ndarray],
    seeds: Sequence[int],
) -> ProbeProblem:
    classes, labels = int(y.max()) + 1, y[None]
    names, of = np.unique(types if types is not None else np.arange(len(y)), return_inverse=True)
    sets: dict[str, Sequence[int]] = {"task": [0] * len(seeds)}
    if types is not None:
        every = ExampleTypes(names=tuple(map(str, names)), of={name: of[index] for name, index in parts.items()})
        own = {name: y[index] for name, index in parts.items()}
        drawn = np.zeros((len(seeds), len(y)), dtype=y.dtype)
        for row, seed in enumerate(seeds):
            control = control_labels(every, own, classes, seed)
            for name, index in parts.items():
                drawn[row, index] = control.of[name]
        labels, sets["control"] = np.concatenate([labels, drawn]), list(range(1, 1 + len(seeds)))
    needed = {
        name: QuestionedPart(
            rows=ChosenRows(x, index), labels=labels[:, index], sentences=sentences[index], types=of[index]
        )
        for name, index in parts.items()
    }
    return ProbeProblem(**needed, classes=classes, sets=sets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The predictions of a task's probes on its test part, and those of its control's probes."""

    facts: dict[str, Any]
    answers: dict[str, ProbePredictions]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Scores, layer by layer."""
        for row in score_rows(self.answers["task"], self.answers.get("control")):
            yield {**self.facts, **row}


def answered(
    problems: Sequence[ProbeProblem],
    settings: ProbeSettings,
    seeds: Sequence[int],
    share: float = 1.0,
    seed: int = 0,
    device: torch.device | None = None,
) -> Answered | None:
    """Predictions for a task, and for its control if a problem has it, after training on this share of the sentences.

    None if there are so few sentences that they have only one class; a note reports this.
    """
    problems = [problem.of_share(share, seed) for problem in problems]
    first = problems[0]
    if any(len(np.unique(row)) < 2 for problem in problems for row in problem.train.labels[:1]):
        current_display().note(f"A probe on {share:.2%} of the training sentences is left out: they have one class.")
        return None
    answers: dict[str, ProbePredictions] = {}
    for problem in problems:
        answers |= probe_answers(problem, settings, seeds, device)
    facts = {
        "share": float(share),
        "training": first.train.rows.shape[0],
        "capacity": settings.capacity(first.train.rows.shape[2], first.classes),
    }
    return Answered(facts=facts, answers=answers)


def probe_answers(
    problem: ProbeProblem, settings: ProbeSettings, seeds: Sequence[int], device: torch.device | None = None
) -> dict[str, ProbePredictions]:
    """Train all probes of a problem together, and predict its test part."""
    layers, names = problem.train.rows.shape[1], list(problem.sets)
    cells = [(layer, s, problem.sets[name][s]) for layer, s, name in product(range(layers), range(len(seeds)), names)]
    layer, number, labels = np.array(cells, dtype=np.int64).T
    grid = ProbeGrid(layer=layer, seed=np.asarray(seeds, dtype=np.int64)[number], labels=labels)
    classes = np.full(len(problem.train.labels), problem.classes)
    trained = train_probes(problem.train, problem.dev, grid, classes, settings, device)
    said = trained.predict(problem.test.rows).reshape(layers, len(seeds), len(names), -1)
    return {name: _answers(problem, name, said[:, :, k]) for k, name in enumerate(names)}


def _answers(problem: ProbeProblem, name: str, said: Int[np.ndarray, "layer seed example"]) -> ProbePredictions:
    rows = list(problem.sets[name])
    counts = np.stack([np.bincount(row, minlength=problem.classes) for row in problem.train.labels[rows]])
    wanted = problem.test.labels[rows]
    return ProbePredictions(
        said=said,
        wanted=wanted,
        majority=counts.argmax(1),
        taught=np.take_along_axis(counts, wanted, axis=1) > 0,
        blocks=block_of(problem.test.sentences),
        seen=problem.seen,
    )
