"""Readings of what probes found: accuracies, selectivity, description lengths, depths, over layers and tasks."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from infoflow.foundation import stream
from infoflow.results import Spec

from ._model_group import Absent
from ._table import Reading, SeedRows, Table, check_layers, together

# R bootstrap replicates, K layers or numbers, T tasks

_NUM_REPLICAS = 1000
WHOLE = 1.0
"""The share of the training sentences that a probe learns from, unless a claim is about less."""
TOKEN_TASKS = ("upos", "xpos", "ccg", "parent")
"""Of each word a label: the first that a run has is the one that claims look at."""


def accuracy(
    objective: Spec,
    task: str | tuple[str, ...],
    labels: str = "task",
    metric: str = "accuracy",
    probe: str = "linear",
) -> Reading:
    """A probe's score over layers 0..L, on all words of the test part."""
    return _scores(objective, task, labels, metric, probe).by(first=0)


def at_best(objective: Spec, task: str | tuple[str, ...], share: float, *, labels: str = "task") -> Reading:
    """Accuracy in the layer that is best by the estimate, of probes that learned from a share of the sentences."""
    return _scores(objective, task, labels, "accuracy", "linear", share).reduce(_best)


def bits(objective: Spec, labels: str = "task", code: str = "online", metric: str = "bits") -> Reading:
    """Description length of the labels of words, or what else `metric` names, over layers 0..L."""
    place = {"probe_layer": 0} if metric == "surviving" else {}
    return (
        Table("probe_codelength", objective)
        .where(task=TOKEN_TASKS, labels=labels, code=code, metric=metric, units="bits", **place)
        .by(first=0)
    )


def depths(objective: Spec, tasks: Sequence[str | tuple[str, ...]], statistic: str) -> Reading:
    """A statistic of where in depth each task lies, (1 + R, T)."""
    return together(
        _side_by_side, *(Table("probe_depth", objective).where(task=task, statistic=statistic) for task in tasks)
    )


def trees(objective: Spec, metric: str, *, beyond_chain: bool = False) -> Reading:
    """A score of structural probes of distance over layers 0..L, or how far it lies above that of a chain of words."""
    table = Table("probe_trees", objective, needs=("layer", "baseline"))
    return Reading(
        (table.where(structure="distance", probe="structural", metric=metric),),
        partial(_tree_curve, beyond_chain=beyond_chain),
        0,
    )


def cumulative_shape(objective: Spec) -> Reading:
    """Share of steps at which a cumulative score falls, share of tasks that are best below the top, number of tasks:
    (1 + R, 3)."""
    return Table("probe_mixing", objective, needs=("layer",)).where(task=..., statistic="score").reduce(_shape)


def shuffled_layers(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every curve with its layers in an order of its own."""
    orders = stream("probing", "shuffled layers")
    found = {}
    for name, curve in curves.items():
        order = orders.permuted(np.tile(np.arange(curve.shape[1]), (_NUM_REPLICAS, 1)), axis=1)
        found[name] = curve[0][order]
    return found


def _scores(
    objective: Spec, task: str | tuple[str, ...], labels: str, metric: str, probe: str, share: float = WHOLE
) -> Table:
    return Table("probe_scores", objective).where(
        task=task, probe=probe, labels=labels, words="all", metric=metric, share=share
    )


def _best(rows: SeedRows) -> np.ndarray:
    numbers = rows.numbers
    if not np.isfinite(numbers[0]).any():
        raise Absent("a probe has no number in any layer")
    return numbers[:, [int(np.nanargmax(numbers[0]))]]


def _side_by_side(*parts: SeedRows) -> np.ndarray:
    if any(len(rows.frame) != 1 for rows in parts):
        raise Absent("probe_depth holds several rows for one task and model: one was needed")
    numbers = [rows.numbers for rows in parts]
    common = min(map(len, numbers))
    return np.concatenate([own[:common] for own in numbers], axis=1)


def _tree_curve(rows: SeedRows, beyond_chain: bool) -> np.ndarray:
    order = np.argsort(rows.column("layer"))
    check_layers(tuple(rows.column("layer")[order].astype(int).tolist()), 0, "probe_trees")
    return rows.numbers[:, order] - (rows.column("baseline")[order] if beyond_chain else 0.0)


def _shape(rows: SeedRows) -> np.ndarray:
    falls, peaks = [], []
    for _, own in rows.groups("task"):
        numbers = own.numbers[:, np.argsort(own.column("layer"))]
        falls.append((np.diff(numbers, axis=1) < 0).mean(axis=1))
        peaks.append(numbers.argmax(axis=1) < numbers.shape[1] - 1)
    common = min(map(len, falls))
    shares = [np.mean([own[:common] for own in each], axis=0) for each in (falls, peaks)]
    return np.stack([*shares, np.full(common, len(peaks))], axis=1)
