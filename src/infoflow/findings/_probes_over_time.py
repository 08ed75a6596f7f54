"""What claims read of probes that are trained anew at every checkpoint, and of grammar beside heads and loss."""

from functools import partial

import numpy as np

from infoflow.over_training import last_crossing
from infoflow.results import Spec

from ._model_group import MASKED, Absent
from ._table import Reading, SeedRows, Table, exact, together

_LEAST = 0.02  # accuracy gained over step 0, below which nothing is learned
_NEARLY = 0.9
_RELATIONS, _POSITIONS = "head_relations", "head_positional"


def probe_times(objective: Spec, *tasks: tuple[str, ...], labels: str = "task") -> Reading:
    """Doublings of updates from the middle of one task's gain over step 0 to that of the next, (1 + R, T - 1).

    Of each task (alternatives, of which the first that a run has counts) the layer that is best at the end. `labels`:
    of the control task, where a task without a gain counts as learned together with the others.
    """
    return together(
        partial(_times_apart, control=labels != "task"), *(_scores(objective, task, labels) for task in tasks)
    )


def best_layer_moves(objective: Spec, task: tuple[str, ...], labels: str = "task") -> Reading:
    """By how many layers the best one is lower at the end than when nine tenths of the gain were first there, and how
    much the last layer's accuracy has lost since then."""
    return _scores(objective, task, labels).reduce(_moves, control=labels != "task")


def heads_with_the_loss(*, positions: bool = False) -> Reading:
    """Of a masked LM: share of the curves of relations that come abruptly; doublings between the middle of their
    middles and the steepest fall of the loss between two checkpoints (0: inside); doublings from there to the middle of
    the gain in minimal pairs; the number of curves. `positions`: heads that attend to fixed places, for those of
    relations.
    """
    phases = Table("phases", MASKED, needs=("table", "curve", "verdict"), number="t50", known=True)
    phases = phases.where(table=_POSITIONS if positions else _RELATIONS)
    loss = Table("task_scores_over_training", MASKED, needs=("update",), course=True)
    pairs = Table("minimal_pairs_over_training", MASKED, needs=("update", "layer"), course=True)
    return together(
        _heads_with_the_loss,
        phases,
        loss.where(split="test", metric="loss"),
        pairs.where(phenomenon="all", metric="preferred", stack=...),
    )


def _scores(objective: Spec, task: tuple[str, ...], labels: str) -> Table:
    needs = ("update", "layer", "replicates")
    table = Table("probe_scores_over_training", objective, needs=needs, course=True)
    return table.where(task=task, probe="linear", labels=labels, words="all", metric="accuracy", share=1.0, stack=...)


def _grid(rows: SeedRows) -> tuple[np.ndarray, np.ndarray]:
    """Updates, and accuracies (1 + R, update, layer)."""
    updates = np.unique(rows.column("update"))
    if updates[0] != 0 or len(updates) < 4:
        raise Absent("probes at step 0 and at three checkpoints after it are needed")
    parts = []
    for _, own in rows.groups("update"):
        parts.append(SeedRows(own.frame.sort_values("layer"), own.number).numbers)
    common, layers = min(map(len, parts)), {part.shape[1] for part in parts}
    if len(layers) > 1:
        raise Absent("checkpoints have probes of different layers")
    return updates, np.stack([part[:common] for part in parts], axis=1)


def _gain(grid: np.ndarray, control: bool, layer: int | None = None) -> np.ndarray:
    """Gain over step 0 at each update, in the layer that is best at the end, (1 + R, update)."""
    best = int(grid[0, -1].argmax()) if layer is None else layer
    gain = grid[:, :, best] - grid[:, :1, best]
    if gain[0, -1] < _LEAST and not control:
        raise Absent(
            f"a probe gains {gain[0, -1]:.3f} over step 0, below {_LEAST}: the task was not learned in training"
        )
    return gain


def _middle(updates: np.ndarray, gain: np.ndarray, share: float = 0.5) -> float:
    """log2 of the update at which a share of the gain is there; NaN where there is none."""
    found = float(last_crossing(updates, gain, share * gain[-1])) if gain[-1] > 0 else np.nan
    return float(np.log2(found)) if np.isfinite(found) else np.nan


def _times_apart(*tasks: SeedRows, control: bool) -> np.ndarray:
    times = []
    for rows in tasks:
        updates, grid = _grid(rows)
        times.append(np.array([_middle(updates, own) for own in _gain(grid, control)]))
    common = min(map(len, times))
    apart = np.diff(np.stack([own[:common] for own in times], axis=1), axis=1)
    return np.nan_to_num(apart) if len(apart) > 1 else exact(np.nan_to_num(apart[0]))


def _moves(rows: SeedRows, control: bool) -> np.ndarray:
    updates, grid = _grid(rows)
    gain = _gain(grid, control)[0]
    first = int(np.flatnonzero(gain >= _NEARLY * gain[-1])[0]) if gain[-1] > 0 else len(updates) - 1
    best = grid.argmax(axis=2)
    moved = np.stack([best[:, first] - best[:, -1], grid[:, first, -1] - grid[:, -1, -1]], axis=1).astype(float)
    return moved if len(moved) > 1 else exact(moved[0])


def _heads_with_the_loss(phases: SeedRows, loss: SeedRows, pairs: SeedRows) -> np.ndarray:
    middle = float(np.median(np.log2(phases.column("t50"))))
    abrupt = float((phases.frame["verdict"] == "abrupt").mean())
    fall = loss.frame[loss.frame["update"] > 0].sort_values("update")
    if len(fall) < 4:
        raise Absent("the loss is needed at four checkpoints after step 0")
    logs = np.log2(fall["update"].to_numpy(float))
    steepest = int(np.diff(fall["value"].to_numpy(float)).argmin())
    low, high = logs[steepest], logs[steepest + 1]
    top = pairs.at(pairs.frame["layer"] == pairs.frame["layer"].max())
    scores = top.frame.sort_values("update")
    grammar = _middle(scores["update"].to_numpy(float), (scores["value"] - scores["value"].iloc[0]).to_numpy(float))
    if scores["update"].iloc[0] != 0 or not np.isfinite(grammar):
        raise Absent("minimal pairs at step 0 and a gain over it are needed")
    return exact([abrupt, max(low - middle, middle - high, 0.0), grammar - middle, len(phases.frame)])
