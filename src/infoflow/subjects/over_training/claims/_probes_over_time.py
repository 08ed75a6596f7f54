"""What claims read from probes trained at every checkpoint, and from the times of relation heads, loss and grammar."""

from functools import partial
from itertools import pairwise

import numpy as np

from infoflow.findings._head_numbers import held_out
from infoflow.findings._model_group import MASKED, Absent
from infoflow.findings._readings import Bound, finished, limit, of_crossing, of_difference, of_distance, with_reach
from infoflow.findings._table import Reading, SeedRows, Table, exact, together
from infoflow.heads import HEAD_POSITIONAL, HEAD_RELATIONS, last_crossing
from infoflow.results import PROBE_SCORES, TASK_SCORES, Spec
from infoflow.subjects.probing.measures import MINIMAL_PAIRS

from ..measures import PHASES
from ._curves_over_time import bound_of_phase, sharpness

_LEAST = 0.02  # minimum gain in accuracy over step 0 that counts as learned
_NEARLY = 0.9
_RELATIONS, _POSITIONS = HEAD_RELATIONS.name, HEAD_POSITIONAL.name


def probe_times(objective: Spec, *tasks: tuple[str, ...], labels: str = "task") -> Reading:
    """Time between the learning of successive tasks, in doublings of updates, (1 + R, T - 1), and the reaches.

    A task is learned when half of its gain over step 0 is reached, in the layer that is best at the end. Each of
    `tasks` lists alternatives; the first one that was measured counts. With the labels of the control task, a task
    without a gain counts as learned at the same time as the others.
    """
    return together(
        partial(_times_apart, control=labels != "task"), *(_scores(objective, task, labels) for task in tasks)
    )


def best_layer_moves(objective: Spec, task: tuple[str, ...], labels: str = "task") -> Reading:
    """Movement of the best layer after the task was learned.

    The columns are how many layers lower the best layer is at the end than when nine tenths of the gain were reached;
    the accuracy that the last layer has lost since then; and the reach of both. A gain that exists at the first
    checkpoint, or still grows, does not date the learning of the task.
    """
    return _scores(objective, task, labels).reduce(_moves, control=labels != "task")


def heads_with_the_loss(*, positions: bool = False) -> Reading:
    """Timing of relation heads, loss and grammar in a masked LM.

    The columns are (1) the share of relation curves that change abruptly, (2) the doublings between the median of their
    middles and the two checkpoints with the steepest fall of the loss (0: between them), (3) the doublings from that
    median to the middle of the gain in minimal pairs, (4) the number of curves, and (5) the reach of the first three.
    With `positions`, the curves are those of heads that attend to fixed positions.
    """
    phases = Table(PHASES.name, MASKED, needs=("table", "curve", "verdict"), number="t50", known=True)
    phases = phases.where(table=_POSITIONS if positions else _RELATIONS)
    loss = Table(TASK_SCORES.at_checkpoints, MASKED, needs=("update",), course=True)
    pairs = Table(MINIMAL_PAIRS.at_checkpoints, MASKED, needs=("update", "layer"), course=True)
    return together(
        _heads_with_the_loss,
        phases,
        loss.where(split="test", metric="loss"),
        pairs.where(phenomenon="all", metric="preferred", stack=...),
    )


def _scores(objective: Spec, task: tuple[str, ...], labels: str) -> Table:
    needs = ("update", "layer", "replicates")
    table = Table(PROBE_SCORES.at_checkpoints, objective, needs=needs, course=True)
    return table.where(task=task, probe="linear", labels=labels, words="all", metric="accuracy", share=1.0, stack=...)


def _grid(rows: SeedRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the updates and the accuracies at them, (1 + R, update, layer)."""
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


def _gain(grid: np.ndarray, control: bool) -> np.ndarray:
    """Gain over step 0 at each update, in the layer that is best at the end, (1 + R, update).

    One half of the sentences selects the layer, the other half gives the gain.
    """
    best = int(held_out(grid[:, -1])[0].argmax())
    _, accuracy = held_out(grid[:, :, best])
    gain = accuracy - accuracy[:, :1]
    if gain[0, -1] < _LEAST and not control:
        raise Absent(
            f"a probe gains {gain[0, -1]:.3f} over step 0, below {_LEAST}: the task was not learned in training"
        )
    return gain


def _middle(updates: np.ndarray, gain: np.ndarray, share: float = 0.5) -> float:
    """log2 of the update at which a share of the gain is reached; NaN without a gain."""
    found = float(last_crossing(updates, gain, share * gain[-1])) if gain[-1] > 0 else np.nan
    return float(np.log2(found)) if np.isfinite(found) else np.nan


def _times_apart(*tasks: SeedRows, control: bool) -> np.ndarray:
    times, bounds = [], []
    for rows in tasks:
        updates, grid = _grid(rows)
        gain = _gain(grid, control)
        times.append(np.array([_middle(updates, own) for own in gain]))
        bounds.append(Bound() if control else of_crossing(last_crossing(updates, gain[0], gain[0, -1] / 2), gain))
    common = min(map(len, times))
    apart = np.diff(np.stack([own[:common] for own in times], axis=1), axis=1)
    found = np.nan_to_num(apart) if len(apart) > 1 else exact(np.nan_to_num(apart[0]))
    return with_reach(found, *(of_difference(second, first) for first, second in pairwise(bounds)))


def _moves(rows: SeedRows, control: bool) -> np.ndarray:
    updates, grid = _grid(rows)
    gains = _gain(grid, control)
    gain = gains[0]
    first = int(np.flatnonzero(gain >= _NEARLY * gain[-1])[0]) if gain[-1] > 0 else len(updates) - 1
    best = grid.argmax(axis=2)
    moved = np.stack([best[:, first] - best[:, -1], grid[:, first, -1] - grid[:, -1, -1]], axis=1).astype(float)
    unknown = limit(not control and (first <= 1 or not finished(gains)))
    return with_reach(moved if len(moved) > 1 else exact(moved[0]), (unknown, unknown))


def _heads_with_the_loss(phases: SeedRows, loss: SeedRows, pairs: SeedRows) -> np.ndarray:
    middle, of_middle = _middle_of_curves(phases)
    abrupt, perhaps = np.mean([[one, more[1]] for one, more in map(sharpness, phases.frame["verdict"])], axis=0)
    low, high, of_fall = _steepest_fall(loss)
    top = pairs.at(pairs.frame["layer"] == pairs.frame["layer"].max())
    scores = top.frame.sort_values("update")
    updates, gain = scores["update"].to_numpy(float), (scores["value"] - scores["value"].iloc[0]).to_numpy(float)
    grammar = _middle(updates, gain)
    if updates[0] != 0 or not np.isfinite(grammar):
        raise Absent("minimal pairs at step 0 and a gain over it are needed")
    of_grammar = of_crossing(last_crossing(updates, gain, gain[-1] / 2), gain[None])
    apart = max(low - middle, middle - high, 0.0)
    reach = of_distance(apart if middle > high else -apart, of_difference(of_middle, of_fall))
    reaches = [0.0, perhaps, *reach, *of_difference(of_grammar, of_middle)]
    return exact([abrupt, apart, grammar - middle, len(phases.frame), *reaches])


def _steepest_fall(loss: SeedRows) -> tuple[float, float, Bound]:
    """The checkpoints with the steepest fall of the loss between them, in log2 of updates, and whether they are bounds.

    They are bounds if the loss fell more before the first checkpoint, or most just before the last one.
    """
    course = loss.frame.sort_values("update")
    updates, values = course["update"].to_numpy(float), course["value"].to_numpy(float)
    before, logs = np.diff(values[updates <= updates[updates > 0].min()]), np.log2(updates[updates > 0])
    if len(logs) < 4:
        raise Absent("the loss is needed at four checkpoints after step 0")
    steps = np.diff(values[updates > 0])
    steepest = int(steps.argmin())
    bound = Bound(earlier=bool((before < steps[steepest]).any()), later=steepest == len(steps) - 1)
    return logs[steepest], logs[steepest + 1], bound


def _middle_of_curves(phases: SeedRows) -> tuple[float, Bound]:
    """Median of the curves' middles, in log2 of updates, and whether moving the bounds among them would change it."""
    times = np.log2(phases.column("t50"))
    bounds = [bound_of_phase(row) for _, row in phases.frame.iterrows()]
    middle = float(np.median(times))
    moved = {
        side: float(np.median(np.where([getattr(one, side) for one in bounds], far, times)))
        for side, far in (("earlier", times.min() - 1), ("later", times.max() + 1))
    }
    return middle, Bound(earlier=moved["earlier"] < middle, later=moved["later"] > middle)
