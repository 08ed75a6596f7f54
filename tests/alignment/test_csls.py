"""CSLS against its definition, pair by pair."""

import math

import numpy as np
import pytest
import torch

from infoflow.alignment import csls


def csls_by_pairs(x, y, neighbours):
    """The formula, with loops."""

    def cosine(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    x, y = x.tolist(), y.tolist()
    near_x = [sum(sorted((cosine(a, b) for b in y), reverse=True)[:neighbours]) / neighbours for a in x]
    near_y = [sum(sorted((cosine(a, b) for a in x), reverse=True)[:neighbours]) / neighbours for b in y]
    return [[2 * cosine(a, b) - near_x[i] - near_y[j] for j, b in enumerate(y)] for i, a in enumerate(x)]


@pytest.fixture
def views():
    rng = np.random.default_rng(0)
    return rng.standard_normal((9, 4)) * rng.uniform(0.1, 9, size=(9, 1)), rng.standard_normal((7, 4)) + 0.5


@pytest.mark.parametrize("neighbours", [1, 3, 7])
def test_agrees_with_the_definition(views, neighbours):
    expected = torch.tensor(csls_by_pairs(*views, neighbours), dtype=torch.float64)
    torch.testing.assert_close(csls(*views, neighbours=neighbours), expected)


def test_each_row_is_divided_by_its_own_norm(views):
    """Published code divides by the norm of the whole matrix: there, lengthening one row changes every score."""
    x, y = views
    lengths = np.array([1, 10, 100, 0.1, 1, 2, 3, 4, 5.0])[:, None]
    torch.testing.assert_close(csls(lengths * x, y, neighbours=2), csls(x, y, neighbours=2))


def test_a_hub_loses_to_the_counterpart():
    """The hub is nearest to every x by cosine, but near everything."""
    x = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.2], [0.7, 0.7, 0.2]])
    hub = torch.tensor([0.6, 0.6, 0.2])
    y = torch.stack([torch.tensor([0.8, -0.6, 0.0]), torch.tensor([-0.6, 0.8, 0.0]), hub])
    cosines = torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(y, dim=1).mT
    assert cosines.argmax(dim=1).tolist() == [2, 2, 2] or cosines.argmax(dim=1).tolist()[2] == 2
    scores = csls(x, y, neighbours=2)
    assert scores.argmax(dim=1)[:2].tolist() == [0, 1]


def test_blocks_change_nothing(views, monkeypatch):
    whole = csls(*views, neighbours=3)
    monkeypatch.setattr("infoflow.subjects.alignment.measures._evaluate._SCORES_AT_ONCE", 15)
    torch.testing.assert_close(csls(*views, neighbours=3), whole, rtol=0, atol=1e-14)
