"""What claims read from curves over training: dips and rises, times by token frequency, and phase changes."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from infoflow.findings._curves import spearman
from infoflow.findings._finding import Control, Curves
from infoflow.findings._model_group import Absent
from infoflow.findings._readings import (
    EXACT,
    Bound,
    Reach,
    limit,
    of_crossing,
    of_difference,
    of_distance,
    of_extremum,
    of_order,
    with_reach,
)
from infoflow.findings._table import Reading, SeedRows, Table, exact, together
from infoflow.foundation import NUM_REPLICATES, stream
from infoflow.heads import last_crossing
from infoflow.representations import MUTUAL_INFORMATION
from infoflow.results import Spec

from ..measures import (
    EMBEDDING_CHANGE,
    IN_CONTEXT_LEARNING,
    LOSS_BY_FREQUENCY,
    NGRAM_AGREEMENT,
    NUM_DECILES,
    PHASES,
    SEED_DIVERGENCE,
)

_LEVEL = 3  # checkpoints averaged for the final level


def identity_dip(objective: Spec, regime: str = "training", *, at_start: bool = False) -> Reading:
    """Depth and timing of the dip in token identity over layers.

    The columns are the depth at the end of training, in nats; the doublings of updates from the minimum of KL(Q2||P)
    until the dip has half of that depth; and the reach of this time.

    The depth is the smaller of the fall from the first state to the lowest inner one and the rise from there to the
    last, averaged over the last three checkpoints. A dip that exists at step 0 is dated to the first checkpoint after
    it.
    With `at_start`, step 0 stands in for every checkpoint.
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

    With `at_start`, use only step 0, resampled as often as there are checkpoints.
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
    began = Bound(earlier=True)  # the dip existed at step 0 or throughout
    return of_difference(of_crossing(half, depth) if np.isfinite(half) else began, of_bigrams)


def _depths(states: SeedRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the updates and the depth of the dip at each, (1 + R, update)."""
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


# Readings of tokens by frequency over training, in deciles from the most frequent.

_SETTLED_WAY = 0.9
_NUM_REPLICAS = 1000
_LEAST_GAIN, _LEAST_DECILES = 0.05, 5  # nats; number of deciles


def times_by_frequency(objective: Spec, *, raw: bool = False) -> Reading:
    """log2 of the update after which each decile's tokens keep at least half of their final gain over the unigram loss.

    Deciles start with the most frequent; NaN if the gain is below .05 nats. Further columns say for each decile whether
    the true time may be earlier, and whether it may be later.

    With `raw`, use half of the total fall of the loss instead; unigrams alone can explain this fall.
    """
    needs = ("decile", "update", "baseline", "replicates")
    table = Table(LOSS_BY_FREQUENCY.at_checkpoints, objective, needs=needs, course=True)
    return table.reduce(_times_by_frequency, raw=raw)


def embeddings_settled(objective: Spec) -> Reading:
    """log2 of the update from which each decile's embeddings have come nine tenths of the way to their final values.

    Deciles start with the most frequent. Further columns say for each decile whether the true time may be earlier, and
    whether it may be later.
    """
    table = Table(EMBEDDING_CHANGE.at_checkpoints, objective, needs=("decile", "update"), course=True)
    return table.reduce(_embeddings_settled)


def frequency_correlation(times: np.ndarray) -> np.ndarray:
    """Rank correlation of frequency with the times of deciles, which start with the most frequent, (N, 1).

    0 if all times are equal; NaN if too few deciles have a time.
    """
    times = times[:, :NUM_DECILES]
    known = np.flatnonzero(np.isfinite(times[0]))
    if len(known) < _LEAST_DECILES:
        return np.full((len(times), 1), np.nan)
    return np.nan_to_num(spearman(times[:, known], -known[None]))


def reach_of_correlation(curve: np.ndarray) -> Reach:
    """How far the true correlation may lie below and above the estimate where times are only bounds."""
    times, *bounds = np.split(curve[0], range(NUM_DECILES, curve.shape[1], NUM_DECILES))
    known = np.isfinite(times)
    if not bounds or known.sum() < _LEAST_DECILES:
        return EXACT
    earlier, later = (one[known] > 0 for one in bounds)
    ranks = -np.flatnonzero(known)[None]

    def correlation(moved: np.ndarray) -> float:
        return float(np.nan_to_num(spearman(moved[None], ranks))[0, 0])

    return of_order(times[known], earlier, later, correlation)


def shuffled_deciles(reads: Mapping[str, Reading]) -> Control:
    """A control: the same times, with the deciles in random order."""

    def fewest(curves: Curves) -> int:
        return min(int(np.isfinite(numbers[0, :NUM_DECILES]).sum()) for numbers in curves.values())

    return Control(name="deciles in random order", reads=reads, transform=_shuffle, permuted=("deciles", fewest))


def _times_by_frequency(rows: SeedRows, raw: bool) -> np.ndarray:
    found = np.full((1 + NUM_REPLICATES, NUM_DECILES), np.nan)
    bounds = np.zeros((2, NUM_DECILES))
    for decile, own in rows.groups("decile"):
        if decile < 0:  # types that never occur in training
            continue
        ordered = SeedRows(own.frame.sort_values("update"), own.number)
        updates, losses = ordered.column("update"), ordered.numbers
        if updates[0] != 0 or len(updates) < 4:
            raise Absent("step 0 and three checkpoints after it are needed")
        gains = (losses[:, :1] if raw else ordered.column("baseline")[None]) - losses
        for row, gain in enumerate(gains[: len(found)]):
            if gain[-1] >= _LEAST_GAIN:
                half = last_crossing(updates, gain, gain[-1] / 2)
                found[row, int(decile)] = np.log2(half)
                if row == 0:
                    bound = of_crossing(half, gains)
                    bounds[:, int(decile)] = bound.earlier, bound.later
    known = np.isfinite(found[0])
    if known.sum() < _LEAST_DECILES:
        raise Absent(
            f"only {known.sum()} deciles gain {_LEAST_GAIN} nats over their unigram loss, {_LEAST_DECILES} are "
            "needed: the vocabulary is too small, or the training too short"
        )
    return np.concatenate([found, np.tile(bounds.ravel(), (len(found), 1))], axis=1)


def _embeddings_settled(rows: SeedRows) -> np.ndarray:
    found, earlier = np.full(NUM_DECILES, np.nan), np.zeros(NUM_DECILES)
    for decile, own in rows.groups("decile"):
        frame = own.frame.sort_values("update")
        updates, left = frame["update"].to_numpy(float), frame["value"].to_numpy(float)
        if updates[0] != 0 or len(updates) < 4:
            raise Absent("step 0 and three checkpoints after it are needed")
        if decile >= 0 and left[0] > 0:
            done = last_crossing(updates, 1 - left / left[0], _SETTLED_WAY)
            found[int(decile)], earlier[int(decile)] = np.log2(done), done.before == 0
    if np.isfinite(found).sum() < _LEAST_DECILES:
        raise Absent(f"fewer than {_LEAST_DECILES} deciles have embeddings: the vocabulary is too small")
    return exact([*found, *earlier, *np.zeros(NUM_DECILES)])  # the last embeddings are the end by definition


def _shuffle(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name, numbers in curves.items():
        times = numbers[0, :NUM_DECILES]
        known = times[np.isfinite(times)]
        orders = stream("findings", "shuffled deciles", name).random((_NUM_REPLICAS, len(known))).argsort(axis=1)
        found[name] = known[orders]
    return found


# What claims read from the table `phases`: whether curves over training change together, and when.
#
# If a curve began to change before the first checkpoint or still changes at the last, its times are only bounds.

INDUCTION_CURVE = "induction, best head"
FIRST_TOKEN_CURVE = "attention to the first token, mean of heads"
GAIN = "repeat_gain"  # the gain from context that short sentences can show


def at_once(objective: Spec, gain: str, other: str = INDUCTION_CURVE) -> Reading:
    """Whether both curves of `phases` change abruptly (1 or 0), the doublings between their middles, and both reaches.

    Sharpness is unknown if a change began before the first checkpoint or is not over at the last.
    """
    return _phases(objective).reduce(_at_once, gain=gain, other=other)


def doublings_between(objective: Spec, first: str, second: str) -> Reading:
    """How many doublings the middle of one curve of `phases` lies after that of another, and the reach."""
    return _phases(objective).reduce(_doublings, first=first, second=second)


def gain_within(objective: Spec, *, elsewhere: bool = False) -> Reading:
    """Share of the gain's change that falls between t10 and t90 of induction, and its reach.

    t10 and t90 are the updates at which a tenth and nine tenths of a curve's change are done. With `elsewhere`, return
    the largest share in any window of as many doublings that does not overlap the window from t10 to t90.
    """
    phases = _phases(objective, "t10", "t90")
    gains = Table(IN_CONTEXT_LEARNING.at_checkpoints, objective, needs=("update", "measure"), course=True)
    return together(_gain_within, phases, gains.where(measure=GAIN), elsewhere=elsewhere)


def _curve_of(rows: SeedRows, name: str) -> pd.Series:
    own = rows.frame[rows.frame["curve"] == name]
    if len(own) != 1 or not np.isfinite(own[rows.number].iloc[0]):
        raise Absent(f"{name} does not change over training, or was not measured at eight checkpoints")
    return own.iloc[0]


def bound_of_phase(row: pd.Series) -> Bound:
    """Whether the times of a curve of `phases` are bounds."""
    began = row["verdict"] == "started before" or row.get("t10_before", np.nan) == 0
    return Bound(earlier=bool(began), later=row["verdict"] == "unfinished")


def sharpness(*verdicts: str) -> tuple[float, Reach]:
    """1 if all verdicts are "abrupt", else 0; and its reach, since an inconclusive verdict might be abrupt."""
    abrupt = all(one == "abrupt" for one in verdicts)
    known = abrupt or "gradual" in verdicts
    return float(abrupt), (0.0, float(not known))


def _phases(objective: Spec, *needs: str) -> Table:
    return Table(PHASES.name, objective, needs=("curve", "verdict", *needs), number="t50")


def _at_once(rows: SeedRows, gain: str, other: str) -> np.ndarray:
    one, two = _curve_of(rows, gain), _curve_of(rows, other)
    abrupt, perhaps = sharpness(one["verdict"], two["verdict"])
    apart = float(np.log2(one["t50"] / two["t50"]))
    reach = of_distance(apart, of_difference(bound_of_phase(one), bound_of_phase(two)))
    return exact([abrupt, abs(apart), *perhaps, *reach])


def _doublings(rows: SeedRows, first: str, second: str) -> np.ndarray:
    one, two = _curve_of(rows, first), _curve_of(rows, second)
    return exact([np.log2(two["t50"] / one["t50"]), *of_difference(bound_of_phase(two), bound_of_phase(one))])


def _gain_within(phases: SeedRows, gains: SeedRows, elsewhere: bool) -> np.ndarray:
    found = _curve_of(phases, INDUCTION_CURVE)
    curve = gains.frame[gains.frame["update"] > 0].sort_values("update")
    logs, values = np.log2(curve["update"].to_numpy(float)), curve[gains.number].to_numpy(float)
    low, high = np.log2(found["t10"]), np.log2(found["t90"])

    def share(start: float) -> float:
        ends = np.interp([start, start + high - low], logs, values)
        return float((ends[1] - ends[0]) / (values[-1] - values[0]))

    if not elsewhere:
        return exact([share(low), *_reach_of_share(share(low), phases, bound_of_phase(found))])
    starts = np.linspace(logs[0], logs[-1] - (high - low), 200) if logs[-1] - logs[0] > high - low else np.array([])
    others = [share(start) for start in starts if start + high - low <= low or start >= high]
    if not others:
        raise Absent("no window of that width lies outside the one of induction")
    return exact([max(others), *EXACT])


def _reach_of_share(share: float, phases: SeedRows, window: Bound) -> Reach:
    """Reach of the share of the gain's change that falls into a window.

    A window whose ends are bounds may contain any share. If the gain began earlier or continues, its total change is
    larger than observed, so the window's share is smaller.
    """
    if window.earlier or window.later:
        return limit(True), limit(True)
    gain = phases.frame[phases.frame["curve"] == GAIN]
    bounds = [bound_of_phase(row) for _, row in gain.iterrows()]
    return (max(share, 0.0) if any(one.earlier or one.later for one in bounds) else 0.0), 0.0
