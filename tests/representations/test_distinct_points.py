"""Repeated points, against comparing every point with every other."""

import numpy as np
import pytest
import torch
from representations.test_geometry_measures import make_sample, table

from infoflow.foundation import make_display, stream, use_display
from infoflow.representations import IntrinsicDimension, two_nn_dimension

TOLERANCE = 1e-5


def by_hand(x, reach):
    kept = []
    for index, row in enumerate(x):
        if all(np.linalg.norm(row - x[other]) > reach for other in kept):
            kept.append(index)
    return kept


def measured(x):
    """The measure's row for one layer of these states."""
    sample = make_sample(num=len(x), states=np.asarray(x)[None], symbols=())
    with use_display(make_display("silent")):
        return table(IntrinsicDimension(words="token"), sample).loc["intrinsic_dimension", "raw", 0]


@pytest.mark.parametrize("scatter", [0.0, 1e-7])
def test_first_of_each_group_is_kept(scatter):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 8)) + 4
    x = points[rng.integers(0, 30, 200)] + scatter * rng.normal(size=(200, 8))
    x = x.astype(np.float32).astype(np.float64)  # as states are
    row = measured(x)
    kept = by_hand(x, TOLERANCE * np.sqrt((x**2).sum(1).mean()))
    assert len(kept) == 30
    assert (row["count"], row["left_out"]) == (30, 170)
    assert row["value"] == pytest.approx(two_nn_dimension(torch.from_numpy(x[kept])), rel=1e-6)


def test_close_points_are_repeated_and_farther_ones_are_not():
    x = np.array([[1.0, 0.0], [1.0 + 1e-6, 0.0], [1.0, 0.0], [1.0 + 1e-3, 0.0]])
    assert measured(x)["count"] == 2
    assert measured(x[[0, 3]])["count"] == 2


def test_points_that_are_close_along_one_direction_only_are_kept():
    """Any two points of a plane at right angles to the direction have the same place on it."""
    direction = stream("distinct-points").standard_normal(3)
    normal = np.array([direction[1], -direction[0], 0.0])
    assert measured(np.outer(np.arange(1, 6), normal))["count"] == 5


@pytest.mark.parametrize("num", [1, 4])
def test_degenerate_clouds(num):
    row = measured(np.zeros((num, 3)))
    assert row["count"] == 1
    assert np.isnan(row["value"])
