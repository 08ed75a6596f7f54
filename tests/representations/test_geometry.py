"""Cosine similarities, explainable variance, intrinsic dimension."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.representations import (
    average_similarity,
    intra_sentence_similarity,
    maximum_explainable_variance,
    self_similarity,
    two_nn_dimension,
)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 5))
def test_self_similarity_is_the_mean_over_all_pairs(seed, n, width):
    x = gaussian(n, width, seed=seed) + 1
    expected = np.mean([cosine(x[i], x[j]) for i in range(n) for j in range(i)])
    assert self_similarity(x) == pytest.approx(expected, abs=1e-10)
    assert average_similarity(x) == self_similarity(x)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 12), st.integers(2, 5))
def test_intra_sentence_similarity_is_the_mean_cosine_to_the_mean(seed, n, width):
    x = gaussian(n, width, seed=seed) + 1
    expected = np.mean([cosine(row, x.mean(0)) for row in x])
    assert intra_sentence_similarity(x) == pytest.approx(expected, abs=1e-10)


def test_zero_vectors_are_left_out():
    x = torch.cat([gaussian(5, 3), torch.zeros(2, 3)])
    assert self_similarity(x) == pytest.approx(self_similarity(x[:5]), abs=1e-12)
    assert intra_sentence_similarity(x) == pytest.approx(intra_sentence_similarity(x[:5]), abs=1e-12)


def test_undefined_similarities_are_nan():
    assert math.isnan(self_similarity(torch.ones(1, 3)))
    assert math.isnan(self_similarity(torch.zeros(4, 3)))
    assert math.isnan(intra_sentence_similarity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])))


def test_isotropic_space_has_no_average_similarity_and_a_shift_gives_it_some():
    x = gaussian(4000, 20)
    assert abs(average_similarity(x)) < 0.005
    assert average_similarity(x + 1) == pytest.approx(0.5, abs=0.03)


def test_explainable_variance_is_the_first_share_of_pca():
    x = gaussian(50, 6) * torch.arange(1, 7) + 4
    variances = np.linalg.eigvalsh(np.cov(x.numpy().T))
    assert maximum_explainable_variance(x) == pytest.approx(variances[-1] / variances.sum(), abs=1e-10)


def test_explainable_variance_of_a_line_is_one_and_of_a_point_undefined():
    assert maximum_explainable_variance(torch.outer(torch.arange(5.0), torch.ones(3)) + 2) == pytest.approx(1)
    assert math.isnan(maximum_explainable_variance(torch.ones(4, 3)))


def two_nn_by_sorting(x):
    logs = []
    for i in range(len(x)):
        first, second = sorted(float((x[i] - x[j]).norm()) for j in range(len(x)) if j != i)[:2]
        logs.append(math.log(second / first))
    return np.array(logs)


def test_two_nn_agrees_with_definition():
    x = gaussian(120, 4)
    logs = two_nn_by_sorting(x)
    assert two_nn_dimension(x) == pytest.approx(len(logs) / logs.sum(), rel=1e-9)
    kept = np.sort(logs)[:108]
    survival = -np.log(1 - np.arange(1, 109) / 120)
    slope = np.linalg.lstsq(kept[:, None], survival, rcond=None)[0][0]
    assert two_nn_dimension(x, method="linear") == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("method", ["mle", "linear"])
@pytest.mark.parametrize("dimension", [1, 3, 6])
def test_two_nn_finds_the_dimension_of_an_embedded_cube(dimension, method):
    cube = torch.rand(3000, dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = cube @ gaussian(dimension, 20) + 5
    assert two_nn_dimension(x, method=method) == pytest.approx(dimension, rel=0.1)


def test_two_nn_ignores_repeated_points_and_no_close_ones():
    x, rows = gaussian(100, 3), torch.randint(100, (400,), generator=torch.Generator().manual_seed(0))
    assert two_nn_dimension(x[rows]) == pytest.approx(two_nn_dimension(x[rows.unique()]), rel=1e-9)
    assert two_nn_dimension(torch.cat([x, x[:20] + 1e-9])) < 0.8 * two_nn_dimension(x)


def test_two_nn_names_mistakes():
    with pytest.raises(UserError, match=r"at least 3 distinct points\. Got 1"):
        two_nn_dimension(torch.ones(10, 2))
    with pytest.raises(UserError, match="method must be"):
        two_nn_dimension(gaussian(9, 2), method="box")


def test_no_occurrences_have_no_similarity():
    for measure in (self_similarity, average_similarity, intra_sentence_similarity, maximum_explainable_variance):
        assert math.isnan(measure(torch.zeros(0, 3)))


def test_explainable_variance_of_a_point_is_undefined_though_its_mean_rounds():
    assert math.isnan(maximum_explainable_variance(np.full((7, 3), 0.1)))


@pytest.mark.parametrize("method", ["mle", "linear"])
def test_two_nn_of_equally_far_points_is_undefined(method):
    triangle = np.array([[0, 0], [1, 0], [0.5, math.sqrt(3) / 2]])
    for points in (
        triangle,
        3 * triangle.astype(np.float32),
        np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2),
    ):
        with pytest.warns(UserWarning, match="equally far"):
            assert math.isnan(two_nn_dimension(points, method=method))
