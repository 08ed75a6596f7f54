"""What claims read of curves over training that go and return: the dip of identity over layers, two seeds' outputs."""

from itertools import combinations

import numpy as np

from infoflow.over_training import last_crossing
from infoflow.results import Spec

from ._model_group import Absent
from ._table import Reading, SeedRows, Table, exact, together

_LEVEL = 3  # checkpoints that make the level at the end


def identity_dip(objective: Spec, regime: str = "training", *, at_start: bool = False) -> Reading:
    """Of what states know about the input token: how deep it dips between the first state and the last one at the end
    of training, in nats; and how many doublings of updates after the minimum of KL(Q2||P) half of that depth is there.

    The depth is the least of the fall from the first state to the lowest one between, and the rise from there to the
    last. Its level is the mean of three checkpoints; a dip that is there at the first checkpoint counts from that one
    on. `at_start`: of step 0 at all checkpoints.
    """
    needs = ("layer", "update", "replicates")
    states = Table("mutual_information_over_training", objective, needs=needs, course=True)
    states = states.where(regime=regime, side="input")
    counts = Table("ngram_agreement_over_training", objective, needs=("update", "replicates"), course=True)
    counts = counts.where(measure="kl_from_ngram", order=2, context="before")
    return together(_dip_after_bigrams, states, counts, at_start=at_start)


def seeds_apart(objective: Spec, *, at_start: bool = False) -> Reading:
    """Of the divergence between the predictions of two seeds: its rise from a minimum to a later maximum before the
    end, and its fall from there to the end, in nats; of all pairs of these the one whose least move is largest.

    `at_start`: of step 0 alone, resampled as often as there are checkpoints.
    """
    table = Table("seed_divergence_over_training", objective, needs=("update", "replicates"), course=True)
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
    return np.array(rows) if common > 1 else exact(rows[0])


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
