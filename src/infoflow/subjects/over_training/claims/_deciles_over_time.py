"""Readings of tokens by frequency over training, in deciles from the most frequent."""

from collections.abc import Mapping

import numpy as np

from infoflow.findings._bounded_times import EXACT, Reach, of_crossing, of_order
from infoflow.findings._finding import Control, Curves
from infoflow.findings._model_group import Absent
from infoflow.findings._shapes import spearman
from infoflow.findings._table import Reading, SeedRows, Table, exact
from infoflow.foundation import NUM_REPLICATES, stream
from infoflow.heads import last_crossing
from infoflow.results import Spec

from ..measures import EMBEDDING_CHANGE, LOSS_BY_FREQUENCY, NUM_DECILES

_SETTLED_WAY = 0.9
_NUM_REPLICAS = 1000
_LEAST_GAIN, _LEAST_DECILES = 0.05, 5  # nats


def times_by_frequency(objective: Spec, *, raw: bool = False) -> Reading:
    """log2 of the update from which a decile's tokens have half of their gain over the unigram loss.

    Deciles start with the most frequent; NaN if the gain is below .05 nats. Further columns say for each decile whether
    the true time may be earlier, and whether it may be later.

    `raw`: half of the total fall of the loss, for which unigrams suffice.
    """
    needs = ("decile", "update", "baseline", "replicates")
    table = Table(LOSS_BY_FREQUENCY.at_checkpoints, objective, needs=needs, course=True)
    return table.reduce(_times_by_frequency, raw=raw)


def embeddings_settled(objective: Spec) -> Reading:
    """log2 of the update from which a decile's embeddings have covered nine tenths of their displacement.

    The displacement is measured from the last embeddings, and deciles start with the most frequent. Further columns say
    for each decile whether the true time may be earlier, and whether it may be later.
    """
    table = Table(EMBEDDING_CHANGE.at_checkpoints, objective, needs=("decile", "update"), course=True)
    return table.reduce(_embeddings_settled)


def frequency_correlation(times: np.ndarray) -> np.ndarray:
    """Rank correlation of frequency with the numbers of deciles, which start with the most frequent, (N, 1).

    0 if all numbers are equal.
    """
    times = times[:, :NUM_DECILES]
    known = np.flatnonzero(np.isfinite(times[0]))
    if len(known) < _LEAST_DECILES:
        return np.full((len(times), 1), np.nan)
    return np.nan_to_num(spearman(times[:, known], -known[None]))


def reach_of_correlation(curve: np.ndarray) -> Reach:
    """How far the true correlation may lie below and above, if times are only bounds."""
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
    """The same numbers with the deciles in random order."""
    return Control(
        name="deciles in random order", reads=reads, transform=_shuffle, permuted=("deciles", _fewest_deciles)
    )


def _fewest_deciles(curves: Curves) -> int:
    return min(int(np.isfinite(numbers[0, :NUM_DECILES]).sum()) for numbers in curves.values())


def _times_by_frequency(rows: SeedRows, raw: bool) -> np.ndarray:
    found = np.full((1 + NUM_REPLICATES, NUM_DECILES), np.nan)
    bounds = np.zeros((2, NUM_DECILES))
    for decile, own in rows.groups("decile"):
        if decile < 0:  # never seen in training
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
            f"{known.sum()} deciles gain {_LEAST_GAIN} nats over their unigram loss, needed {_LEAST_DECILES}: the "
            "vocabulary is too small, or the training too short"
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
