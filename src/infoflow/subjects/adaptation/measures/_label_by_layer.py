"""The layer in which a task's label can be read, and what linguistic probes gain or lose by tuning."""

# N labelled text or word, S state, M model

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32, Int

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError, block_sums, stream
from infoflow.models import Model
from infoflow.representations import HalvedClusters
from infoflow.results import PROBE_SCORES, ratio_estimate
from infoflow.subjects.probing.measures import LabelledRows, Probe, ProbeGrid, ProbeSettings, tasks, train_probes

from ._body import began_as
from ._states import Places, States, mean_estimate, tuned_table
from ._tables import LABEL_BY_LAYER, PROBES_AFTER_TUNING
from ._task import AbstractTask

READ = ("classification", "regression", "tagging")  # shapes with labels that a probe can predict
_CLUSTERS, _PER_CLUSTER = (2, 5, 10, 20, 50, 100), 25
_TYPES = 200  # number of distinct tokens for information about words: the most frequent ones
_SHUFFLES = 3
# Labelled texts are few; at the rate for words (1e-3), probes stop before they learn anything from 60 texts.
_PROBES = ProbeSettings(rate=1e-2, batch=160, epochs=20, patience=5)


def label_by_layer(
    places: Mapping[str, Places], models: Mapping[str, Sequence[Model]], most: int = 3000
) -> pd.DataFrame:
    r"""The table `LABEL_BY_LAYER` without the columns of `TUNED`, from the positions to read in each part, the models
    by state ("before", "after", "untrained"), and the maximum number of labels.

    | metric | of | baseline |
    |---|---|---|
    | accuracy | a linear probe for the label, trained on `train`, stopped on `dev`, scored on `test` | majority class |
    | information | between the label and the cluster of the state, in nats, on `dev` and `test` | shuffled labels |
    | information about the input | between a word's token and the cluster of its state, on `test` | shuffled tokens |
    | information about the output | between the next token and that cluster, only for causal models | shuffled tokens |

    A probe reads the mean of a text's states over its text tokens; in a tagging task, the state of each labelled token.
    A number (regression) becomes one of three classes, by the terciles of training. Information is the corrected
    estimate of `MutualInformation`, with one cluster (k-means) per 25 states; compare only values from the same number
    of states. After tuning, numbers are means over seeds.
    """
    questions, test = _questions(places, most), places["test"]
    stack = test.part.model.anatomy.reads.name
    flat = [
        (state, {part: each.states(one) for part, each in places.items()})
        for state, members in models.items()
        for one in members
    ]
    layers = flat[0][1]["test"].texts.shape[1]
    accuracy = _accuracies(questions, [each for _, each in flat])
    rows = []
    for state in models:
        members = [index for index, (other, _) in enumerate(flat) if other == state]
        for layer in range(layers):
            keys = {"stack": stack, "layer": layer, "state": state}
            read = [accuracy[place * layers + layer] for place in members]
            rows.append({**keys, "metric": "accuracy", **mean_estimate(read, scale="share")})
            found = [_informations(questions, test, flat[place][1], layer, stack) for place in members]
            rows += [
                {**keys, "metric": metric, **mean_estimate([one[metric] for one in found], scale="any")}
                for metric in found[0]
            ]
    return tuned_table(LABEL_BY_LAYER, rows)


def no_labels(task: AbstractTask) -> str | None:
    """Why no probe can predict the task's labels, or None."""
    if task.shape not in READ:
        return f"{task.task} ({task.shape}) has no label of a text or a word"
    return f"examples of {task.task} may have several labels" if getattr(task, "multi", False) else None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Question:
    """One part's labels, 0..C−1, their bootstrap blocks, and the indices of their states."""

    labels: Int[np.ndarray, " N"]
    blocks: Int[np.ndarray, " N"]
    chosen: Int[np.ndarray, " N"]
    tags: bool

    def of(self, states: States) -> Float32[np.ndarray, "N S width"]:
        return (states.labelled if self.tags else states.texts)[self.chosen]


def _questions(places: Mapping[str, Places], most: int) -> dict[str, _Question]:
    labels = {name: each.labels for name, each in places.items()}
    if places["train"].part.task.shape == "regression":
        edges = np.quantile(labels["train"].astype(np.float64), [1 / 3, 2 / 3])
        labels = {name: np.searchsorted(edges, of.astype(np.float64), side="right") for name, of in labels.items()}
    found = {}
    for name, each in places.items():
        few = np.linspace(0, len(labels[name]) - 1, min(most, len(labels[name]))).round().astype(np.int64)
        found[name] = _Question(
            labels=labels[name][few].astype(np.int64), blocks=each.label_blocks[few], chosen=few, tags=each.tags
        )
    if len(np.unique(found["train"].labels)) < 2:
        raise UserError(
            f"A probe needs at least two labels. All {len(found['train'].labels):,} training examples of "
            f"{places['train'].part.task.task} that it reads have the same label. Use more examples."
        )
    return found


def _accuracies(questions: Mapping[str, _Question], models: Sequence[Mapping[str, States]]) -> list[dict[str, Any]]:
    """The estimate columns of a probe's accuracy, by model and layer; all train as one problem."""
    inputs = {
        part: np.concatenate([each.of(one[part]) for one in models], axis=1) for part, each in questions.items()
    }  # fmt: skip
    layers = inputs["train"].shape[1]
    grid = ProbeGrid(
        layer=np.arange(layers), seed=np.zeros(layers, dtype=np.int64), labels=np.zeros(layers, dtype=np.int64)
    )
    rows = {part: LabelledRows(rows=inputs[part], labels=each.labels[None]) for part, each in questions.items()}
    classes = 1 + max(int(each.labels.max()) for each in questions.values())
    said = train_probes(rows["train"], rows["dev"], grid, np.array([classes]), _PROBES).predict(inputs["test"])
    wanted, blocks = questions["test"].labels, questions["test"].blocks
    majority = np.bincount(questions["train"].labels).argmax()
    count, guess = block_sums(np.ones(len(blocks)), blocks), float((wanted == majority).mean())
    return [ratio_estimate(block_sums(row == wanted, blocks), count, guess, scale="share") for row in said]


def _informations(
    questions: Mapping[str, _Question], test: Places, states: Mapping[str, States], layer: int, stack: str
) -> dict[str, dict[str, Any]]:
    """The estimate columns of the information in one layer, by metric."""
    held_out = [questions["dev"], questions["test"]]
    rows = np.concatenate(
        [each.of(states[part])[:, layer] for part, each in zip(("dev", "test"), held_out, strict=True)]
    )
    labels, blocks = (np.concatenate([getattr(each, name) for each in held_out]) for name in ("labels", "blocks"))
    found = {"information": _information(rows, labels, blocks)}
    words = states["test"].words[stack][:, layer]
    sides = {"information about the input": test.tokens[stack]}
    if test.part.model.anatomy.reads.causal:
        sides["information about the output"] = test.following[stack]
    for metric, tokens in sides.items():
        kept = _frequent(tokens)
        if len(kept) >= _CLUSTERS[0] * _PER_CLUSTER:
            _, of = np.unique(tokens[kept], return_inverse=True)
            found[metric] = _information(words[kept], of, test.blocks[stack][kept])
    return found


def _frequent(tokens: Int[np.ndarray, " word"]) -> Int[np.ndarray, " kept"]:
    """Indices of the positions that have one of the most frequent tokens; −1 is no token."""
    types, counts = np.unique(tokens[tokens >= 0], return_counts=True)
    common = types[np.argsort(-counts, kind="stable")[:_TYPES]]
    return np.flatnonzero(np.isin(tokens, common))


def _information(
    rows: Float32[np.ndarray, "N width"], labels: Int[np.ndarray, " N"], blocks: Int[np.ndarray, " N"]
) -> dict[str, Any]:
    """The estimate columns of the information between states' clusters and labels."""
    clusters = max([each for each in _CLUSTERS if each * _PER_CLUSTER <= len(rows)], default=_CLUSTERS[0])
    found = HalvedClusters.fitted(torch.from_numpy(rows), clusters, blocks)
    random = stream("label-information")
    shuffled = [found.corrected(random.permutation(labels)) for _ in range(_SHUFFLES)]
    return found.estimate(labels).columns(float(np.mean(shuffled)), len(labels))


# Changes in the accuracy of linguistic probes by tuning.

PROBED = ("upos", "word", "position")


def probes_after_tuning(
    before: Model,
    after: Sequence[Model],
    corpus: Corpus,
    options: PassOptions | None = None,
    *,
    tagged: Corpus | None = None,
    probed: Sequence[str] = PROBED,
    sentences: int = 300,
) -> pd.DataFrame:
    """The table `PROBES_AFTER_TUNING` without the columns of `TUNED`.

    It has the accuracy of linear probes (`probing.Probe`) for a word's part of speech, identity and position, trained
    on the frozen states of each layer of the model before tuning and of each tuned model; after tuning, means over
    seeds. Probes have few examples and stop early, so compare before with after, not with published numbers. They read
    `tagged`, an annotated corpus, or else `corpus`, which may lack the columns for some probes.
    """
    start = began_as(before, after)
    words = corpus if tagged is None else tagged
    measures = [
        Probe(task=name, sentences=sentences, seeds=1, control=False, epochs=8, batch=400, patience=2)
        for name in askable(words, probed)
    ]
    by_model = [
        _accuracies_of_probes(measure(one, words, measures, options)[PROBE_SCORES.name]) for one in (start, *after)
    ]
    rows = []
    for (probe, stack, layer), row in by_model[0].items():
        keys = {"probe": probe, "stack": stack, "layer": layer}
        rows.append({**keys, "state": "before", **mean_estimate([row], scale="share")})
        tuned = [of_model[probe, stack, layer] for of_model in by_model[1:]]
        rows.append({**keys, "state": "after", **mean_estimate(tuned, scale="share")})
    return tuned_table(PROBES_AFTER_TUNING, rows)


def askable(corpus: Corpus, probed: Sequence[str] = PROBED) -> list[str]:
    """The probing tasks for which the corpus has the columns."""
    known = {task.name for task in tasks(corpus)}
    return [name for name in probed if name in known]


def _accuracies_of_probes(scores: pd.DataFrame) -> dict[tuple[str, str, int], dict[str, Any]]:
    chosen = scores[(scores["metric"] == "accuracy") & (scores["labels"] == "task") & (scores["words"] == "all")]
    return {(row["task"], row["stack"], row["layer"]): row for row in chosen.to_dict("records")}
