"""What claims read of tokens by their frequency, over training: deciles from the most frequent."""

from collections.abc import Mapping

import numpy as np

from infoflow.foundation import NUM_REPLICATES, stream
from infoflow.over_training import NUM_DECILES, last_crossing
from infoflow.results import Spec

from ._finding import Control
from ._model_group import Absent
from ._shapes import spearman
from ._table import Reading, SeedRows, Table, exact

_SETTLED_WAY = 0.9
_NUM_REPLICAS = 1000
_LEAST_GAIN, _LEAST_DECILES = 0.05, 5  # nats


def times_by_frequency(objective: Spec, *, raw: bool = False) -> Reading:
    """log2 of the update from which on half of what a decile's tokens gain over their unigram loss is there; deciles
    from the most frequent, NaN where less than .05 nats is gained.

    `raw`: half of the whole fall of the loss, for which unigrams are enough.
    """
    needs = ("decile", "update", "baseline", "replicates")
    table = Table("loss_by_frequency_over_training", objective, needs=needs, course=True)
    return table.reduce(_times_by_frequency, raw=raw)


def embeddings_settled(objective: Spec) -> Reading:
    """log2 of the update from which on nine tenths of the way of a decile's embeddings are done, by displacement from
    the last ones; deciles from the most frequent."""
    table = Table("embedding_change_over_training", objective, needs=("decile", "update"), course=True)
    return table.reduce(_embeddings_settled)


def frequency_correlation(times: np.ndarray) -> np.ndarray:
    """Rank correlation of frequency with the numbers of deciles, which begin with the most frequent, (N, 1).

    0 where all are equal.
    """
    known = np.flatnonzero(np.isfinite(times[0]))
    if len(known) < _LEAST_DECILES:
        return np.full((len(times), 1), np.nan)
    return np.nan_to_num(spearman(times[:, known], -known[None]))


def shuffled_deciles(reads: Mapping[str, Reading]) -> Control:
    """The same numbers with the deciles in random order."""
    return Control(name="deciles in random order", reads=reads, transform=_shuffle)


def _times_by_frequency(rows: SeedRows, raw: bool) -> np.ndarray:
    found = np.full((1 + NUM_REPLICATES, NUM_DECILES), np.nan)
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
                found[row, int(decile)] = np.log2(last_crossing(updates, gain, gain[-1] / 2))
    known = np.isfinite(found[0])
    if known.sum() < _LEAST_DECILES:
        raise Absent(
            f"{known.sum()} deciles gain {_LEAST_GAIN} nats over their unigram loss, needed {_LEAST_DECILES}: the "
            "vocabulary is too small, or the training too short"
        )
    return found


def _embeddings_settled(rows: SeedRows) -> np.ndarray:
    found = np.full(NUM_DECILES, np.nan)
    for decile, own in rows.groups("decile"):
        frame = own.frame.sort_values("update")
        updates, left = frame["update"].to_numpy(float), frame["value"].to_numpy(float)
        if updates[0] != 0 or len(updates) < 4:
            raise Absent("step 0 and three checkpoints after it are needed")
        if decile >= 0 and left[0] > 0:
            found[int(decile)] = np.log2(last_crossing(updates, 1 - left / left[0], _SETTLED_WAY))
    if np.isfinite(found).sum() < _LEAST_DECILES:
        raise Absent(f"fewer than {_LEAST_DECILES} deciles have embeddings: the vocabulary is too small")
    return exact(found)


def _shuffle(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name, numbers in curves.items():
        known = numbers[0, np.isfinite(numbers[0])]
        orders = stream("findings", "shuffled deciles", name).random((_NUM_REPLICAS, len(known))).argsort(axis=1)
        found[name] = known[orders]
    return found
