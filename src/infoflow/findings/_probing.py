"""Readings of what probes found: accuracies, selectivity, description lengths, depths, over layers and tasks."""

from collections.abc import Sequence

import numpy as np

from infoflow.foundation import stream
from infoflow.results import Spec

from ._model_group import Absent
from ._table import Reading, SeedRows, Table, together

# R bootstrap replicates, K layers or numbers, T tasks

_NUM_REPLICAS = 1000
WHOLE = 1.0
"""The share of the training sentences that a probe learns from, unless a claim is about less."""
TOKEN_TASKS = ("upos", "xpos", "ccg", "parent")
"""Of each word a label: the first that a run has is the one that claims look at."""


def accuracy(objective: Spec, task: str | tuple[str, ...], labels: str = "task", metric: str = "accuracy") -> Reading:
    """A linear probe's accuracy over layers, on all words."""
    return scores(objective, task, labels, metric).by(first=0)


def scores(objective: Spec, task: str | tuple[str, ...], labels: str, metric: str, share: float = WHOLE) -> Table:
    return Table("probe_scores", objective).where(
        task=task, probe="linear", labels=labels, words="all", metric=metric, share=share
    )


def bits(objective: Spec, labels: str = "task", code: str = "online", metric: str = "bits") -> Reading:
    """Description length over layers."""
    return lengths(objective, labels, code, metric).by(first=0)


def lengths(objective: Spec, labels: str, code: str, metric: str) -> Table:
    return Table("probe_codelength", objective).where(task=TOKEN_TASKS, labels=labels, code=code, metric=metric)


def at_best(objective: Spec, task: str | tuple[str, ...], share: float, *, labels: str = "task") -> Reading:
    """Accuracy in the layer that is best by the estimate, of probes that learned from a share of the sentences."""
    return scores(objective, task, labels, "accuracy", share).reduce(_best)


def depths(objective: Spec, tasks: Sequence[str], statistic: str) -> Reading:
    """A statistic of where in depth each task lies, (1 + R, T)."""
    return together(
        _side_by_side,
        *(Table("probe_depth", objective).where(task=task, statistic=statistic) for task in tasks),
    )


def _best(rows: SeedRows) -> np.ndarray:
    numbers = rows.numbers
    if not np.isfinite(numbers[0]).any():
        raise Absent("a probe has no number in any layer")
    return numbers[:, [int(np.nanargmax(numbers[0]))]]


def _side_by_side(*parts: SeedRows) -> np.ndarray:
    numbers = [rows.numbers for rows in parts]
    if any(own.shape[1] != 1 for own in numbers):
        raise Absent("probe_depth holds several rows for one task and model: one was needed")
    common = min(len(own) for own in numbers)
    return np.concatenate([own[:common] for own in numbers], axis=1)


def accuracy_of(objective: Spec, probe: str) -> Reading:
    """A probe's accuracy over layers on the first token task that there is."""
    return (
        Table("probe_scores", objective)
        .where(task=TOKEN_TASKS, probe=probe, labels="task", words="all", metric="accuracy", share=WHOLE)
        .by(first=0)
    )


def trees(objective: Spec, metric: str, number: str = "value") -> Reading:
    """A score of the structural probe over layers; its baseline is the chain of neighbours."""
    return Table("probe_trees", objective, number=number).where(metric=metric).by(first=0)


def cumulative_shape(objective: Spec) -> Reading:
    """Share of steps at which a cumulative score falls, and share of tasks that are best below the top: (1 + R, 2)."""
    return Table("probe_mixing", objective).where(task=..., statistic="score").reduce(_cumulative_shape)


def shuffled_layers(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every curve with its layers in an order of its own."""
    orders = stream("probing", "shuffled layers")
    found = {}
    for name, curve in curves.items():
        order = orders.permuted(np.tile(np.arange(curve.shape[1]), (_NUM_REPLICAS, 1)), axis=1)
        found[name] = curve[0][order]
    return found


def _cumulative_shape(rows: SeedRows) -> np.ndarray:
    falls, peaks = [], []
    for _, own in rows.groups("task"):
        numbers = own.numbers[:, np.argsort(own.column("layer"))]
        falls.append((np.diff(numbers, axis=1) < 0).mean(axis=1))
        peaks.append(numbers.argmax(axis=1) < numbers.shape[1] - 1)
    common = min(map(len, falls))
    return np.stack([np.mean([own[:common] for own in each], axis=0) for each in (falls, peaks)], axis=1)
