"""How far the seed of k-means alone can change a curve of mutual information."""

from collections.abc import Mapping

import numpy as np

from infoflow.foundation import stream

from ._finding import Control
from ._table import Reading

_NUM_REPLICAS = 1000


def clustering_control(reads: Mapping[str, Reading]) -> Control:
    """Flat curves that differ between layers only by the spread over clustering seeds.

    It needs more than one clustering seed; with one it is reported as not measured.
    """
    return Control(
        name="spread of k-means over its seeds",
        reads={name: curve.changed(number="clustering_spread") for name, curve in reads.items()},
        transform=_noise,
    )


def _noise(spreads: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: spread * stream("findings", "clustering", name).standard_normal((_NUM_REPLICAS, spread.shape[1]))
        for name, spread in spreads.items()
    }
