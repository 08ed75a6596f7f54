"""Repeated points, against comparing every point with every other."""

import numpy as np
import pytest
import torch

from infoflow.foundation import stream
from infoflow.representations._intrinsic_dimension import distinct_points


def by_hand(x, reach):
    kept = []
    for index, row in enumerate(x):
        if all(np.linalg.norm(row - x[other]) > reach for other in kept):
            kept.append(index)
    return kept


@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_first_of_each_group_is_kept(tolerance):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 8)) + 4
    x = points[rng.integers(0, 30, 200)] + (1e-8 if tolerance else 0) * rng.normal(size=(200, 8))
    found = distinct_points(torch.from_numpy(x), tolerance).tolist()
    reach = tolerance * np.sqrt((x**2).sum(1).mean())
    assert found == by_hand(x, reach)
    assert len(found) == 30


def test_close_points_are_distinct_where_nothing_is_tolerated():
    x = torch.tensor([[1.0, 0.0], [1.0 + 1e-6, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert distinct_points(x).tolist() == [0, 1]
    assert distinct_points(x, 1e-5).tolist() == [0]


def test_points_that_are_close_along_one_direction_only_are_kept():
    """Any two points of a plane at right angles to the direction have the same place on it."""
    direction = stream("distinct-points").standard_normal(3)
    normal = np.array([direction[1], -direction[0], 0.0])
    x = torch.from_numpy(np.outer(np.arange(1, 6), normal))
    assert distinct_points(x, 1e-5).tolist() == list(range(5))


@pytest.mark.parametrize("num", [0, 1, 4])
def test_degenerate_clouds(num):
    assert len(distinct_points(torch.zeros(num, 3), 1e-5)) == min(num, 1)
