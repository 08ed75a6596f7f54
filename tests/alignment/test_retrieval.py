"""Retrieval by CSLS against loops over all pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.alignment import retrieval_hits
from infoflow.foundation import UserError


def accuracy(x, y, neighbours=10):
    """Shares of rows that find their counterpart: x to y, and y to x."""
    return tuple(float(hits.mean()) for hits in retrieval_hits(x, y, neighbours))


def csls_by_pairs(x, y, neighbours):
    """The formula, with loops."""

    def cosine(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    x, y = x.tolist(), y.tolist()
    near_x = [sum(sorted((cosine(a, b) for b in y), reverse=True)[:neighbours]) / neighbours for a in x]
    near_y = [sum(sorted((cosine(a, b) for a in x), reverse=True)[:neighbours]) / neighbours for b in y]
    return [[2 * cosine(a, b) - near_x[i] - near_y[j] for j, b in enumerate(y)] for i, a in enumerate(x)]


def retrieval_by_loops(x, y, neighbours):
    """Best match of each row and of each column of the whole score matrix; no ties among random vectors."""
    scores = csls_by_pairs(x, y, neighbours)
    n = len(scores)
    forward = sum(max(range(n), key=lambda j: scores[i][j]) == i for i in range(n)) / n
    backward = sum(max(range(n), key=lambda i: scores[i][j]) == j for j in range(n)) / n
    return forward, backward


@pytest.mark.parametrize("noise", [0.0, 0.7, 1.5])
def test_agrees_with_loops(noise):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 5))
    y = x + noise * rng.standard_normal((40, 5))
    found = accuracy(x, y, neighbours=4)
    assert found == retrieval_by_loops(x, y, 4)
    assert (found[0] == 1) == (noise == 0)


def test_directions_differ():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3))
    y = x + rng.exponential(size=(30, 1)) * rng.standard_normal((30, 3))
    found = accuracy(x, y, neighbours=2)
    assert found == retrieval_by_loops(x, y, 2)
    assert found[0] != found[1]


def test_a_collapsed_space_scores_chance():
    """All scores tie: the first of them is no find. (An argmax would call word 0 found, `>=` every word.)"""
    x, y = torch.ones(50, 3), torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert accuracy(torch.ones(50, 3), torch.ones(50, 3)) == pytest.approx((0.02, 0.02))
    found = accuracy(x, y)
    assert found[0] <= 0.02
    assert found[1] == pytest.approx(0.02)


def test_equal_counterparts_share_a_find():
    y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    forward, _ = retrieval_hits(y.clone(), y, neighbours=1)
    assert forward.tolist() == [0.5, 0.5, 1.0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_only_directions_and_pairs_count(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((20, 4))
    y = x + 0.5 * rng.standard_normal((20, 4))
    found, order = accuracy(x, y, neighbours=3), rng.permutation(20)
    lengths = rng.uniform(0.5, 2, (20, 1))
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert accuracy(lengths * x @ rotation, 3 * y @ rotation, neighbours=3) == found
    assert accuracy(x[order], y[order], neighbours=3) == found
    assert accuracy(y, x, neighbours=3) == found[::-1]


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 4))
    y = x + rng.standard_normal((30, 4))
    whole = accuracy(x, y)
    monkeypatch.setattr("infoflow.subjects.alignment.measures._evaluate._SCORES_AT_ONCE", 70)
    assert accuracy(x, y) == whole


@pytest.mark.parametrize(
    ("x", "y", "neighbours", "message"),
    [
        (torch.rand(12, 2), torch.rand(11, 2), 10, "Got 12 and 11"),
        (torch.ones(3, 2), torch.ones(3, 4), 1, "one space"),
        (torch.ones(3, 2), torch.ones(2, 2), 3, r"1\.\.2"),
        (torch.ones(3, 2), torch.ones(2, 2), 0, "neighbours"),
        (torch.zeros(3, 2), torch.ones(3, 2), 1, "3 rows of x are zero"),
        (torch.ones(3, 2), torch.full((3, 2), math.nan), 1, "y must be finite"),
        (torch.ones(3), torch.ones(3, 2), 1, "x must be a matrix"),
    ],
)
def test_mistakes_are_named(x, y, neighbours, message):
    with pytest.raises(UserError, match=message):
        accuracy(x, y, neighbours=neighbours)
