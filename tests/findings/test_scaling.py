"""Multidimensional scaling, against scikit-learn's and scipy's."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import minimize
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import smacof

from infoflow.findings._scaling import aligned, classical_scaling, distances_between, scale, shuffled_stress


def spread(num: int, dimensions: int, seed: int = 0) -> np.ndarray:
    return squareform(pdist(np.random.default_rng(seed).normal(size=(num, dimensions))))


def stress_one(points: np.ndarray, distances: np.ndarray) -> float:
    """Kruskal's formula, pair by pair."""
    above = below = 0.0
    for i in range(len(points)):
        for j in range(i):
            drawn = float(np.sqrt(((points[i] - points[j]) ** 2).sum()))
            above += (drawn - distances[i, j]) ** 2
            below += drawn**2
    return float(np.sqrt(above / below))


def test_distances_of_a_plane_are_drawn_as_they_are() -> None:
    distances = spread(9, 2)
    drawn = scale(distances)
    np.testing.assert_allclose(distances_between(drawn.points_OD), distances, atol=1e-6)
    assert drawn.stress < 1e-6
    np.testing.assert_allclose(distances_between(classical_scaling(distances)), distances, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_stress_is_no_higher_than_that_of_another_program(seed: int) -> None:
    distances = spread(10, 6, seed)
    drawn = scale(distances)
    assert drawn.stress == pytest.approx(stress_one(drawn.points_OD, distances), rel=1e-9)
    options = {"n_components": 2, "n_init": 16, "max_iter": 2000, "eps": 1e-12, "random_state": 0}
    points, *_ = smacof(distances, **options, normalized_stress=False)
    assert drawn.stress <= stress_one(points, distances) * 1.02


def test_the_picture_is_a_minimum() -> None:
    distances = spread(8, 5)
    drawn = scale(distances)

    def raw(flat: np.ndarray) -> float:
        return float((pdist(flat.reshape(-1, 2)) - squareform(distances, checks=False)).__pow__(2).sum())

    lower = minimize(raw, drawn.points_OD.ravel(), method="BFGS")
    assert lower.fun == pytest.approx(raw(drawn.points_OD.ravel()), rel=1e-4)


def test_a_picture_is_the_same_each_time_and_whatever_the_order() -> None:
    distances = spread(7, 4)
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    first, again, other = scale(distances), scale(distances), scale(distances[np.ix_(order, order)])
    np.testing.assert_array_equal(first.points_OD, again.points_OD)
    assert other.stress == pytest.approx(first.stress, rel=1e-3)


def test_alignment_undoes_a_turn_a_mirror_and_a_shift() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, 2))
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    np.testing.assert_allclose(aligned(points @ turn + 3, points), points, atol=1e-9)
    noisy = points @ turn + rng.normal(0, 0.1, points.shape)
    centred, onto = noisy - noisy.mean(axis=0), points - points.mean(axis=0)
    expected = centred @ orthogonal_procrustes(centred, onto)[0] + points.mean(axis=0)
    np.testing.assert_allclose(aligned(noisy, points), expected, atol=1e-9)


def test_shuffled_distances_are_drawn_worse() -> None:
    distances = spread(9, 2)
    assert shuffled_stress(distances) > 0.1 > scale(distances).stress


def test_equal_points_have_no_stress() -> None:
    assert scale(np.zeros((5, 5))).stress == 0
    two = np.kron(np.array([[0, 1], [1, 0]]), np.ones((3, 3)))  # two groups at one distance
    assert scale(two).stress < 1e-4
