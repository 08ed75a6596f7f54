"""Curves over training whose truth is known."""

from collections.abc import Callable

import numpy as np

from infoflow.training import DEFAULT_SCHEDULE, checkpoint_steps

UPDATES = 5000
STEPS = np.array(checkpoint_steps(DEFAULT_SCHEDULE, UPDATES, 400))


def logistic(tau: float, middle: float = 8.0) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: 1 / (1 + np.exp(-(np.log2(np.maximum(t, 1e-9)) - middle) / tau))


GRADUAL = {
    "wide logistic": logistic(1.0),
    "relaxation": lambda t: 1 - np.exp(-t / 300),
    "power": lambda t: 1 - np.maximum(t, 1.0) ** -0.3,
    "line in t": lambda t: t / UPDATES,
    "line from the middle": lambda t: np.maximum(t - UPDATES / 2, 0) / (UPDATES / 2),
    "hyperbola": lambda t: t / (300 + t),
}
ABRUPT = {"logistic": logistic(0.3), "late start": lambda t: np.where(t > 300, 1 - np.exp(-(t - 300) / 200), 0.0)}
