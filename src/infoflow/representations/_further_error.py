"""Sources of error beside the choice of sentences, in replicates and in intervals."""

import numpy as np
from jaxtyping import Float

from infoflow.foundation import Interval, Scale, stream


def standard_noise(num: int, *key: str | int) -> Float[np.ndarray, " replicate"]:
    """Normal deviates of mean 0 and standard deviation 1, exactly; the same for the same key."""
    noise = stream(*key).standard_normal(num)
    return (noise - noise.mean()) / noise.std()


def wider(ends: Interval, value: float, further: float, scale: Scale = "any") -> Interval:
    """The interval with another, independent source of error, of which `further` is half a 95 % interval."""
    low, high = value - np.hypot(value - ends.low, further), value + np.hypot(ends.high - value, further)
    least, most = {"any": (-np.inf, np.inf), "positive": (0.0, np.inf), "share": (0.0, 1.0)}[scale]
    return Interval(float(max(low, min(value, least))), float(min(high, max(value, most))))
