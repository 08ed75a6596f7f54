"""Multidimensional scaling, against the same steps written out, and a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import pdist, squareform

from infoflow.subjects.alignment.claims._objective_map import (
    aligned,
    classical_scaling,
    distances_between,
    scale,
    shuffled_stress,
)


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


def explicit_smacof(distances: np.ndarray, points: np.ndarray, steps: int = 3000) -> np.ndarray:
    """Guttman transforms, point by point."""
    num = len(points)
    for _ in range(steps):
        moved = np.zeros_like(points)
        for i in range(num):
            for j in range(num):
                apart = float(np.sqrt(((points[i] - points[j]) ** 2).sum()))
                if i != j and apart > 0:
                    moved[i] += distances[i, j] / apart * (points[i] - points[j])
        points = moved / num
    return points


@pytest.mark.parametrize("seed", range(2))
def test_every_step_from_a_given_start_is_the_explicit_one(seed: int) -> None:
    distances = spread(5, 4, seed)
    start = np.random.default_rng(seed).normal(size=(5, 2))
    drawn = scale(distances, start_OD=start)
    expected = explicit_smacof(distances, start)
    assert drawn.stress == pytest.approx(stress_one(drawn.points_OD, distances), rel=1e-9)
    assert drawn.stress == pytest.approx(stress_one(expected, distances), rel=1e-5)
    np.testing.assert_allclose(distances_between(drawn.points_OD), distances_between(expected), atol=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_start_ends_much_lower(seed: int) -> None:
    distances, generator = spread(10, 6, seed), np.random.default_rng(seed)
    others = [scale(distances, start_OD=generator.normal(size=(10, 2))).stress for _ in range(12)]
    assert scale(distances).stress <= 1.02 * min(others)


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
    found = aligned(noisy, points)
    np.testing.assert_allclose(distances_between(found), distances_between(noisy), atol=1e-9)

    def apart(angle: float, mirrored: bool) -> float:
        turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        moved = (noisy - noisy.mean(axis=0)) @ (turned * [1, -1 if mirrored else 1])
        return float(((moved + points.mean(axis=0) - points) ** 2).sum())

    least = min(apart(angle, mirrored) for angle in np.linspace(0, 2 * np.pi, 2000) for mirrored in (False, True))
    assert ((found - points) ** 2).sum() == pytest.approx(least, rel=1e-3)


def test_shuffled_distances_are_drawn_worse() -> None:
    distances = spread(9, 2)
    assert shuffled_stress(distances) > 0.1 > scale(distances).stress


def test_equal_points_have_no_stress() -> None:
    assert scale(np.zeros((5, 5))).stress == 0
    two = np.kron(np.array([[0, 1], [1, 0]]), np.ones((3, 3)))  # two groups at one distance
    assert scale(two).stress < 1e-4
