"""Linear and MLP probes of every layer as a measure, with controls; and predictions for single examples."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from jaxtyping import Int

from infoflow.flow import Intervention, PassOptions, Reader, describe_measure
from infoflow.foundation import UserError, current_display, digest, hash64_array, running_words
from infoflow.results import PROBE_SCORES, Column, TableSchema

from ._batched import ProbeSettings
from ._features import POOLINGS, LayerInputs, WordFeatures
from ._layers import Answered, ProbeProblem, QuestionedPart, answered, check_classes
from ._probe_scores import ProbePredictions
from ._probed_task import (
    PARTS,
    chosen_sentences,
    control_arcs,
    control_labels,
    example_types,
    features_of,
    is_arcs,
    requested_task,
    with_states,
)
from ._questions import Part, ProbeTask

PROBES = ("linear", "mlp")  # probes whose scores are accuracies


AnsweredTask = tuple[ProbeTask, Answered | None]  # no answers if the few sentences have only one class

_ANSWERED: "WeakKeyDictionary[Reader, dict[str, AnsweredTask | None]]" = WeakKeyDictionary()
"""Results by settings, shared by measures with the same probes and freed with the reader."""
_UNSHARED = ("measure", "version", "sizes")  # settings that do not affect training on one share


class Probe(Intervention):
    """Probes of each layer: accuracy, macro-F1 and selectivity on held-out sentences.

    The model is frozen. All layers and seeds, for the task and its control, train as one problem (`train_probes`), on
    states collected in one pass (`collect_features`). Seeds differ in initial weights, in the order of examples and in
    the control's random labels. The control of `arc` has its own pairs (`control_arcs`), the same for all seeds.

    Args:
        task: One of `tasks()`, or a tag column of the corpus.
        probe: "linear", or "mlp" with one hidden layer.
        sentences: Maximum number, chosen by hash: three fifths to train, a fifth for early stopping, a fifth to test.
        sizes: Shares of the training sentences that probes are trained on; 1.0 means all.
        seeds: Number of probes of each kind; a useful spread needs at least three.
        hidden: Units of the hidden layer of "mlp".
        dropout: Dropout on the last layer's input.
        weight_decay: Adam's weight decay.
        epochs: Maximum number of epochs.
        batch: Examples per step.
        patience: Epochs without a better dev accuracy after which a probe stops.
        pooling: State of a word with several tokens: the mean of the tokens' states, or the first, or the last.
        control: Whether to train on the control task as well.
        corrupted: Share of the examples whose types get the control's label.
        seed: Seeds the choice of sentences and their parts.

    Source: [@liu2019linguistic] for the probe, [@hewitt2019control] for the control.
    """

    table: ClassVar[TableSchema] = PROBE_SCORES

    def __init__(
        self,
        task: str = "upos",
        probe: str = "linear",
        sentences: int = 2000,
        sizes: tuple[float, ...] = (1.0,),
        seeds: int = 3,
        hidden: int = 100,
        dropout: float = 0.0,
        weight_decay: float = 0.0,
        epochs: int = 50,
        batch: int = 80,
        patience: int = 3,
        pooling: str = "mean",
        control: bool = True,
        corrupted: float = 1.0,
        seed: int = 0,
    ) -> None:
        if probe not in PROBES or pooling not in POOLINGS:
            raise UserError(
                f"probe must be one of {', '.join(PROBES)}, pooling one of {', '.join(POOLINGS)}. "
                f"Got {probe} and {pooling}."
            )
        if sentences < len(PARTS) or seeds < 1 or (probe == "mlp" and hidden < 1):
            raise UserError(
                f"sentences must be at least {len(PARTS)}, seeds and the hidden units of an mlp at least 1. "
                f"Got {sentences}, {seeds} and {hidden}."
            )
        if not sizes or not all(0 < size <= 1 for size in sizes) or not 0 <= corrupted <= 1:
            raise UserError(
                f"sizes must lie above 0 and up to 1, corrupted in 0..1. Got {', '.join(map(str, sizes)) or 'no size'} "
                f"and {corrupted}."
            )
        self.task, self.probe, self.sentences, self.sizes, self.seeds = task, probe, sentences, tuple(sizes), seeds
        self.hidden = hidden if probe == "mlp" else 0
        self.dropout, self.weight_decay, self.epochs = dropout, weight_decay, epochs
        self.batch, self.patience, self.pooling = batch, patience, pooling
        self.control, self.corrupted, self.seed = control, corrupted, seed
        self._settings = ProbeSettings(
            hidden=self.hidden,
            dropout=dropout,
            weight_decay=weight_decay,
            epochs=epochs,
            batch=batch,
            patience=patience,
        )

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        built = self._built(reader, options)
        if built is None:
            return pd.DataFrame(columns=self.table.column_names)
        facts, found = self._facts(built[0], reader), list[dict[str, Any]]()
        with current_display().progress(f"Probing {reader.model.name} for {self.task}", len(self.sizes)) as progress:
            for share in self.sizes:
                task, answers = self._trained(built, share, reader)
                if share == max(self.sizes):
                    _ANSWERED.setdefault(reader, {})[self._key(options)] = task, answers
                found += [] if answers is None else [{**facts, **row} for row in answers.rows()]
                progress.advance(1)
        return pd.DataFrame(found, columns=self.table.column_names)

    def _facts(self, task: ProbeTask, reader: Reader) -> dict[str, Any]:
        return {
            "task": task.name,
            "unit": task.unit,
            "probe": self.probe,
            "stack": reader.source_stack,
            "dropout": self.dropout,
            "weight_decay": self.weight_decay,
            "corrupted": self.corrupted,
        }

    def on_all(self, reader: Reader, options: PassOptions) -> AnsweredTask | None:
        """Answers of probes trained on the largest share; None if the corpus lacks what the task needs.

        Measures with the same settings share the training for a reader's model.
        """
        known, key = _ANSWERED.setdefault(reader, {}), self._key(options)
        if key not in known:
            built = self._built(reader, options)
            known[key] = None if built is None else self._trained(built, max(self.sizes), reader)
        return known[key]

    def _key(self, options: PassOptions) -> str:
        of_training = {name: value for name, value in describe_measure(self).items() if name not in _UNSHARED}
        return digest([of_training, max(self.sizes), options.key])

    def _built(self, reader: Reader, options: PassOptions) -> tuple[ProbeTask, list[ProbeProblem]] | None:
        rows = chosen_sentences(reader, self.sentences, self.seed)
        task = requested_task(self.task, reader, rows, self.seed)
        if task is None:
            return None
        features = features_of(task, reader, rows, self.pooling, options)
        task = with_states(task, features)
        return task, self._problems(task, features)

    def _trained(self, built: tuple[ProbeTask, list[ProbeProblem]], share: float, reader: Reader) -> AnsweredTask:
        task, problems = built
        return task, answered(problems, self._settings, range(self.seeds), share, self.seed, reader.model.device)

    def _problems(self, task: ProbeTask, features: Mapping[str, WordFeatures]) -> list[ProbeProblem]:
        """The task and its control as one problem, or as two if the control uses other examples."""
        check_classes(task.train.examples.label)
        if self.control and is_arcs(task):
            own = {name: control_arcs(getattr(task, name), task.names, self.seed) for name in PARTS}
            parts = {name: Part(corpus=getattr(task, name).corpus, examples=own[name]) for name in PARTS}
            control = with_states(replace(task, **parts), features)
            sets = {"control": [0] * self.seeds}
            return [self._problem(task, features, False), self._problem(control, features, False, sets)]
        return [self._problem(task, features, self.control)]

    def _problem(
        self,
        task: ProbeTask,
        features: Mapping[str, WordFeatures],
        control: bool,
        sets: Mapping[str, list[int]] | None = None,
    ) -> ProbeProblem:
        types, own = example_types(task), {name: getattr(task, name).examples.label for name in PARTS}
        sets, labels = dict(sets or {"task": [0] * self.seeds}), {name: [own[name]] for name in PARTS}
        if control:
            sets["control"] = list(range(1, 1 + self.seeds))
            for seed in range(self.seeds):
                drawn = control_labels(types, own, len(task.names), seed, self.corrupted)
                for name in PARTS:
                    labels[name].append(drawn.of[name])
        parts = {}
        for name in PARTS:
            part = getattr(task, name)
            parts[name] = QuestionedPart(
                rows=LayerInputs(features[name], part.examples),
                labels=np.stack(labels[name]),
                sentences=part.corpus.content_ids[part.examples.sentence],
                types=types.of[name],
            )
        return ProbeProblem(**parts, classes=len(task.names), sets=sets)


PROBE_EXAMPLES = TableSchema(
    name="probe_examples",
    description="Test examples of a task, at most one per sentence, chosen by a hash of their text, and the "
    "predictions of each layer's probes for them. They are chosen before anything is trained and are the same for all "
    "models. They are illustrations, not findings.",
    columns=(
        Column("task", "string", "", "name of the task"),
        Column("unit", "string", "", "what is labelled: token, span, pair or sentence"),
        Column("probe", "string", "", "linear; mlp: with one hidden layer"),
        Column("stack", "string", "", "encoder or decoder: the one that reads the text"),
        Column("example", "int64", "", "number of the example, in the order of hashes"),
        Column("text", "string", "", "the words of the sentence, separated by spaces"),
        *(
            Column(f"{span}_{end}", "int64", "words", description)
            for span, of in (("first", "what is labelled"), ("second", "the other span of a pair; -1: none"))
            for end, description in (("start", f"first word of {of}"), ("end", f"one past the last word of {of}"))
        ),
        Column("gold", "string", "", "the correct label"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("said", "string", "", "the label that most of the probes give"),
        Column("right", "float64", "share of probes", "share of the probes that give the correct label"),
        Column("seeds", "int64", "", "number of probes"),
    ),
)

MOST_EXAMPLES = 60  # maximum number of examples of a task


class ProbeExamples(Probe):
    """Predictions of each layer's probes for single test examples, some of which only upper layers get right.

    The probes are those of `Probe` with the same settings; both measures share one training.

    Arguments are those of `Probe`.
    """

    table: ClassVar[TableSchema] = PROBE_EXAMPLES

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        task, found = self.on_all(reader, options) or (None, None)
        rows = [] if task is None or found is None else self._rows(task, found.answers["task"], reader.source_stack)
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _rows(self, task: ProbeTask, answers: ProbePredictions, stack: str) -> Iterator[dict[str, Any]]:
        part, names = task.test, task.names
        facts = {"task": task.name, "unit": task.unit, "probe": self.probe, "stack": stack}
        for number, index in enumerate(chosen_examples(part, MOST_EXAMPLES).tolist()):
            one = {**facts, "example": number, **_shown(part, index), "gold": names[part.examples.label[index]]}
            for layer, said in enumerate(answers.said[:, :, index]):
                prediction = {"layer": layer, "said": names[np.bincount(said).argmax()], "seeds": len(said)}
                yield {**one, **prediction, "right": float((said == part.examples.label[index]).mean())}


def chosen_examples(part: Part, most: int) -> Int[np.ndarray, " chosen"]:
    """Indices of at most this many examples of the part, one per sentence, by a hash of sentence and position."""
    examples = part.examples
    ids = part.corpus.content_ids[examples.sentence].astype(np.uint64)
    for number in np.concatenate(examples.spans, axis=1).astype(np.uint64).T:  # wraps around, as hashes do
        ids = ids * np.uint64(1_000_003) + number
    order = np.argsort(hash64_array(("probe-shown",), ids), kind="stable")
    _, first = np.unique(examples.sentence[order], return_index=True)
    return order[np.sort(first)[:most]]


def _shown(part: Part, place: int) -> dict[str, Any]:
    """The example's sentence and spans."""
    examples, sentence = part.examples, part.corpus[int(part.examples.sentence[place])]
    words = running_words(sentence.text) if sentence.words is None else sentence.words
    second = (-1, -1) if examples.second is None else examples.second[place]
    spans = {"first": examples.first[place], "second": second}
    ends = {
        f"{span}_{end}": int(at) for span, own in spans.items() for end, at in zip(("start", "end"), own, strict=True)
    }
    return {"text": " ".join(" ".join(word.split()) or "·" for word in words), **ends}
