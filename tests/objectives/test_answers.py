"""Accuracy and area under the curve, against sums over all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from infoflow.foundation import stream
from infoflow.objectives import accuracy, area_under_curve


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 25), st.integers(0, 10**6), st.integers(2, 6))
def test_the_area_is_the_share_of_pairs_in_their_order(num, seed, levels) -> None:
    generator = stream("answers", seed)
    scores, truth = generator.integers(levels, size=num).astype(float), generator.integers(2, size=num)
    weights = generator.random(num)
    right = total = 0.0
    for i in range(num):
        for j in range(num):
            if truth[i] == 1 and truth[j] == 0:
                total += weights[i] * weights[j]
                right += weights[i] * weights[j] * (1.0 if scores[i] > scores[j] else 0.5 * (scores[i] == scores[j]))
    found = area_under_curve(scores, truth, weights)
    assert found == pytest.approx(right / total) if total else np.isnan(found)


def test_the_area_is_that_of_the_rank_test() -> None:
    generator = stream("area")
    scores, truth = generator.normal(size=200), generator.integers(2, size=200)
    statistic = mannwhitneyu(scores[truth == 1], scores[truth == 0]).statistic
    expected = statistic / (truth.sum() * (200 - truth.sum()))
    assert area_under_curve(scores, truth, np.ones(200)) == pytest.approx(expected)


def test_accuracy_weighs_its_questions() -> None:
    scores, truth = np.array([1.0, -1.0, 2.0, -0.5]), np.array([1, 1, 0, 0])
    assert accuracy(scores, truth, np.ones(4)) == 0.5
    assert accuracy(scores, truth, np.array([3.0, 1.0, 1.0, 3.0])) == pytest.approx(6 / 8)
