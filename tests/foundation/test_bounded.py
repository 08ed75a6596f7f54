"""Intervals inside bounds: how often they hold the truth."""

import numpy as np
import pytest

from infoflow.dynamics import similarity
from infoflow.foundation import (
    NUM_BLOCKS,
    at_least_each_class,
    block_effects,
    block_interval,
    interval,
    replicate_weights,
    stream,
    symmetric_interval,
)

DRAWS = 150


@pytest.mark.parametrize(("metric", "noise", "alike"), [("spearman", 0.05, 0.9), ("cosine", 0.2, 0.9)])
def test_the_similarity_of_noisy_profiles_is_held(metric: str, noise: float, alike: float) -> None:
    rng = stream("test", metric, str(noise), str(alike))
    weights = rng.multinomial(64, np.full(64, 1 / 64), 200)
    held, by_percentiles = 0, 0
    for _ in range(DRAWS):
        first, other = rng.lognormal(size=(2, 42))
        second = alike * first + (1 - alike) * other
        seen = [one * (1 + 8 * noise * rng.standard_normal((64, 42))) for one in (first, second)]
        value, truth = (float(similarity(*pair, metric)) for pair in ([s.mean(0) for s in seen], (first, second)))
        drawn = similarity(*(weights @ one / 64 for one in seen), metric)
        low, high = symmetric_interval(value, drawn, "correlation")
        assert -1 <= low <= high <= 1
        held += low <= truth <= high
        low, high = interval(drawn)
        by_percentiles += low <= truth <= high
    assert held >= 0.88 * DRAWS
    assert by_percentiles < 0.75 * DRAWS


def test_macro_f1_with_a_rare_class_is_held() -> None:
    size, rare = 200, 0.03
    rng = stream("test", "macro", size, str(rare))
    shares, right = np.array([0.6, 0.4 - rare, rare]), np.array([0.95, 0.9, 0.7])
    wrong = np.array([[0.0, 0.9, 0.1], [0.9, 0.0, 0.1], [0.5, 0.5, 0.0]])
    truly = np.diag(shares * right) + (shares * (1 - right))[:, None] * wrong
    truth = float(scores_of(truly).mean())
    weights, plain, held = replicate_weights(), 0, 0
    for _ in range(DRAWS):
        cells, blocks = rng.choice(9, size, p=truly.ravel()), rng.integers(0, NUM_BLOCKS, size)
        counts = np.bincount(blocks * 9 + cells, minlength=NUM_BLOCKS * 9).reshape(NUM_BLOCKS, 3, 3)
        whole, draws = counts.sum(0), np.tensordot(weights, counts, axes=1)
        value = float(scores_of(whole).mean())
        ends = block_interval(value, block_effects(value, scores_of(draws).mean(-1)), scale="share", count=size)
        plain += ends.low <= truth <= ends.high
        ends = at_least_each_class(ends, np.diagonal(whole), whole.sum(0) + whole.sum(1))
        held += ends.low <= truth <= ends.high
    assert plain < held
    assert held >= 0.93 * DRAWS


def scores_of(counts: np.ndarray) -> np.ndarray:
    """F1 of each class."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    named = counts.sum(-1) + counts.sum(-2)
    return np.divide(2 * hits, named, out=np.zeros(named.shape), where=named > 0)
