"""Readings of curves over training that leave and return: the identity dip over layers, and two seeds' outputs."""

from itertools import combinations

import numpy as np

from infoflow.findings._bounded_times import EXACT, Bound, Reach, of_crossing, of_difference, of_extremum, with_reach
from infoflow.findings._model_group import Absent
from infoflow.findings._table import Reading, SeedRows, Table, exact, together
from infoflow.heads import last_crossing
from infoflow.representations import MUTUAL_INFORMATION
from infoflow.results import Spec

from ..measures import NGRAM_AGREEMENT, SEED_DIVERGENCE

_LEVEL = 3  # checkpoints averaged for the final level


def identity_dip(objective: Spec, regime: str = "training", *, at_start: bool = False) -> Reading:
    """Depth and timing of the dip in token identity over layers.

    It returns how deep the curve dips between the first and the last state at the end of training, in nats; the
    doublings of updates from the minimum of KL(Q2||P) until half of that depth exists; and the reach of the latter.

    The depth is the smaller of the fall from the first state to the lowest one between, and the rise from there to the
    last. Its level is the mean of three checkpoints; a dip that exists at the first checkpoint counts from that one on.
    `at_start`: use step 0 at all checkpoints.
    """
    needs = ("layer", "update", "replicates")
    states = Table(MUTUAL_INFORMATION.at_checkpoints, objective, needs=needs, course=True)
    states = states.where(regime=regime, side="input")
    counts = Table(NGRAM_AGREEMENT.at_checkpoints, objective, needs=("update", "replicates"), course=True)
    counts = counts.where(measure="kl_from_ngram", order=2, context="before")
    return together(_dip_after_bigrams, states, counts, at_start=at_start)


def seeds_apart(objective: Spec, *, at_start: bool = False) -> Reading:
    """How the divergence between two seeds' predictions rises and falls again.

    It returns the rise from a minimum to a later maximum before the end, and the fall from there to the end, in nats,
    for the pair of points that maximises the smaller move.

    `at_start`: use only step 0, resampled as often as there are checkpoints.
    """
    table = Table(SEED_DIVERGENCE.at_checkpoints, objective, needs=("update", "replicates"), course=True)
    return table.where(position=-1).reduce(_apart, at_start=at_start)


def _dip_after_bigrams(states: SeedRows, counts: SeedRows, at_start: bool) -> np.ndarray:
    updates, depth = _depths(states)
    ordered = SeedRows(counts.frame[counts.frame["update"] > 0].sort_values("update"), counts.number)
    bigrams = ordered.column("update")[ordered.numbers.argmin(axis=1)]
    if len(updates) < _LEVEL + 1 or updates[0] != 0:
        raise Absent(f"step 0 and {_LEVEL} checkpoints after it are needed")
    depth = np.repeat(depth[:, :1], len(updates), axis=1) if at_start else depth
    common = min(len(depth), len(bigrams))
    rows = [_depth_and_time(updates, own, when) for own, when in zip(depth[:common], bigrams[:common], strict=True)]
    found = np.array(rows) if common > 1 else exact(rows[0])
    of_bigrams = of_extremum(int(ordered.numbers[0].argmin()), len(ordered.frame))
    return with_reach(found, EXACT if at_start else _reach_of_half(updates, depth, of_bigrams))


def _reach_of_half(updates: np.ndarray, depth: np.ndarray, of_bigrams: Bound) -> Reach:
    level = float(depth[0, -_LEVEL:].mean())
    if level <= 0:
        return EXACT
    half = last_crossing(updates, depth[0], level / 2)
    began = Bound(earlier=True)  # it existed at step 0 or throughout
    return of_difference(of_crossing(half, depth) if np.isfinite(half) else began, of_bigrams)


def _depths(states: SeedRows) -> tuple[np.ndarray, np.ndarray]:
    """The updates, and the depth of the dip at each: (1 + R, update)."""
    updates, depths = list[float](), list[np.ndarray]()
    for update, own in states.groups("update"):
        numbers = SeedRows(own.frame.sort_values("layer"), own.number).numbers
        if numbers.shape[1] < 3:
            raise Absent("a dip needs a state between the first and the last one")
        updates.append(float(update))
        depths.append(np.minimum(numbers[:, 0], numbers[:, -1]) - numbers[:, 1:-1].min(axis=1))
    common = min(map(len, depths))
    return np.array(updates), np.stack([own[:common] for own in depths], axis=1)


def _depth_and_time(updates: np.ndarray, depth: np.ndarray, bigrams: float) -> tuple[float, float]:
    level = float(depth[-_LEVEL:].mean())
    if level <= 0:
        return level, 0.0
    half = float(last_crossing(updates, depth, level / 2))
    half = half if np.isfinite(half) else float(updates[1])
    return level, float(np.log2(half / bigrams))


def _apart(rows: SeedRows, at_start: bool) -> np.ndarray:
    ordered = SeedRows(rows.frame.sort_values("update"), rows.number)
    numbers, updates = ordered.numbers, ordered.column("update")
    if updates[0] != 0 or len(updates) < 4 or len(numbers) < 2:
        raise Absent("step 0 and three checkpoints after it are needed, with their replicates")
    curve = np.resize(numbers[1:, 0], (1, len(updates))) if at_start else numbers

    def moves(low: int, high: int) -> np.ndarray:
        return np.stack([curve[:, high] - curve[:, low], curve[:, high] - curve[:, -1]], axis=1)

    pairs = list(combinations(range(len(updates) - 1), 2))
    best = max(pairs, key=lambda pair: moves(*pair)[0].min())
    found = moves(*best)
    return found if len(found) > 1 else exact(found[0])
