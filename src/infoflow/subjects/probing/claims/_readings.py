"""What several claims read from the tables of probes."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from infoflow.findings._head_numbers import largest
from infoflow.findings._model_group import Absent
from infoflow.findings._readings import TOKEN_TASKS, probe_scores
from infoflow.findings._table import Reading, SeedRows, Table, check_layers, together
from infoflow.foundation import stream
from infoflow.results import Spec

from ..measures import PROBE_CODELENGTH, PROBE_DEPTH, PROBE_MIXING, PROBE_TREES

# R bootstrap replicates, T tasks
_NUM_REPLICAS = 1000


def at_best(objective: Spec, task: str | tuple[str, ...], share: float, *, labels: str = "task") -> Reading:
    """Accuracy of probes trained on a share of the sentences, at the layer whose estimate is best."""
    return probe_scores(objective, task, labels, "accuracy", "linear", share).reduce(_best)


def bits(objective: Spec, labels: str = "task", code: str = "online", metric: str = "bits") -> Reading:
    """Description length of word labels, or another `metric` of the code, over layers 0..L."""
    place = {"probe_layer": 0} if metric == "surviving" else {}
    return (
        Table(PROBE_CODELENGTH.name, objective)
        .where(task=TOKEN_TASKS, labels=labels, code=code, metric=metric, units="bits", **place)
        .by(first=0)
    )


def depths(objective: Spec, tasks: Sequence[str | tuple[str, ...]], statistic: str) -> Reading:
    """A statistic of each task's depth, (1 + R, T)."""
    return together(
        _side_by_side, *(Table(PROBE_DEPTH.name, objective).where(task=task, statistic=statistic) for task in tasks)
    )


def trees(objective: Spec, metric: str, *, beyond_chain: bool = False) -> Reading:
    """A structural probe's distance score over layers 0..L, optionally minus that of a chain of words."""
    table = Table(PROBE_TREES.name, objective, needs=("layer", "baseline"))
    return Reading(
        (table.where(structure="distance", probe="structural", metric=metric),),
        partial(_tree_curve, beyond_chain=beyond_chain),
        0,
    )


def cumulative_shape(objective: Spec) -> Reading:
    """Shape of cumulative scores, (1 + R, 3).

    The columns are the share of steps at which the score falls, the share of tasks whose score is highest below the top
    layer, and the number of tasks.
    """
    return Table(PROBE_MIXING.name, objective, needs=("layer",)).where(task=..., statistic="score").reduce(_shape)


def shuffled_layers(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every curve with its layers in a separate random order."""
    orders = stream("probing", "shuffled layers")
    found = {}
    for name, curve in curves.items():
        order = orders.permuted(np.tile(np.arange(curve.shape[1]), (_NUM_REPLICAS, 1)), axis=1)
        found[name] = curve[0][order]
    return found


def _best(rows: SeedRows) -> np.ndarray:
    numbers = rows.numbers
    if not np.isfinite(numbers[0]).any():
        raise Absent("a probe has no score at any layer")
    return largest(numbers)


def _side_by_side(*parts: SeedRows) -> np.ndarray:
    if any(len(rows.frame) != 1 for rows in parts):
        raise Absent("probe_depth has several rows for one task and model: one is needed")
    numbers = [rows.numbers for rows in parts]
    common = min(map(len, numbers))
    return np.concatenate([own[:common] for own in numbers], axis=1)


def _tree_curve(rows: SeedRows, beyond_chain: bool) -> np.ndarray:
    order = np.argsort(rows.column("layer"))
    check_layers(tuple(rows.column("layer")[order].astype(int).tolist()), 0, PROBE_TREES.name)
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
