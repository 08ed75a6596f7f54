"""Shapes of curves against explicit definitions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from infoflow.findings import (
    early_layer,
    falls,
    later_over_earlier,
    middle_layer,
    pair_names,
    spearman,
    step_names,
    total_fall,
)

curves = st.lists(st.integers(-3, 3), min_size=6, max_size=6).map(lambda values: np.array([values], dtype=float))


@given(first=curves, second=curves)
def test_spearman_agrees_with_scipy(first, second):
    ours = spearman(first, second)
    assert ours.shape == (1, 1)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(ours).all()
    else:
        assert ours[0, 0] == pytest.approx(spearmanr(first[0], second[0]).statistic)


@given(curves)
def test_ratios_of_later_to_earlier(curve):
    curve = curve + 10
    expected = [curve[0, later] / curve[0, earlier] for earlier, later in combinations(range(6), 2)]
    np.testing.assert_allclose(later_over_earlier(curve)[0], expected)
    assert pair_names(3, 1) == ["2-3 over 1-2", "3-4 over 1-2", "3-4 over 2-3"]


def test_falls_and_their_names():
    curve = np.array([[5.0, 4.0, 4.5]])
    assert falls(curve).tolist() == [[1.0, -0.5]]
    assert total_fall(curve).tolist() == [[0.5]]
    assert step_names(2, 0) == ["layers 0→1", "layers 1→2"]


@pytest.mark.parametrize(("layers", "early", "middle"), [(6, 2, 3), (12, 4, 6), (3, 1, 2), (4, 1, 2)])
def test_named_layers_keep_their_place_in_models_of_other_depth(layers, early, middle):
    assert (early_layer(layers), middle_layer(layers)) == (early, middle)
