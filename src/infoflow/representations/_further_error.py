"""Sources of error other than the choice of sentences, in replicates and in intervals."""

import numpy as np
from jaxtyping import Float

from infoflow.foundation import NUM_BLOCKS, Interval, Scale, bounds_of, replicate_weights, stream


def standard_noise(num: int, *key: str | int) -> Float[np.ndarray, " replicate"]:
    """Replicates of mean 0 and standard deviation 1, exactly, of an error that is independent of the choice of
    sentences; the same for the same key.

    They are linear in the weights of `replicate_weights`, as if each block of sentences moved the estimate: intervals
    of differences and means derive the effects of blocks from replicates (`block_effects`), and would otherwise lose
    most of an error without block effects.
    """
    shares = replicate_weights(num) - 1
    effects = stream(*key).standard_normal(NUM_BLOCKS)
    drift = shares.mean(axis=0)  # part of the effects in the replicates' mean
    noise = shares @ (effects - drift * (effects @ drift) / (drift @ drift))
    return noise / noise.std()


def wider(ends: Interval, value: float, further: float, scale: Scale = "any") -> Interval:
    """The interval widened by an independent source of error with a 95 % interval of half width `further`."""
    low, high = value - np.hypot(value - ends.low, further), value + np.hypot(ends.high - value, further)
    least, most = bounds_of(scale)
    return Interval(float(max(low, min(value, least))), float(min(high, max(value, most))))
