"""Retrieval by CSLS against loops over all pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.alignment import Retrieval, csls, retrieval_accuracy, retrieval_hits
from infoflow.foundation import UserError


def retrieval_by_loops(x, y, neighbours):
    """Best match of each row and of each column of the whole score matrix; no ties among random vectors."""
    scores = csls(x, y, neighbours=neighbours).tolist()
    n = len(scores)
    forward = sum(max(range(n), key=lambda j: scores[i][j]) == i for i in range(n)) / n
    backward = sum(max(range(n), key=lambda i: scores[i][j]) == j for j in range(n)) / n
    return Retrieval(forward=forward, backward=backward)


@pytest.mark.parametrize("noise", [0.0, 0.7, 1.5])
def test_agrees_with_loops(noise):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 5))
    y = x + noise * rng.standard_normal((40, 5))
    found = retrieval_accuracy(x, y, neighbours=4)
    assert found == retrieval_by_loops(x, y, 4)
    assert (found.forward == 1) == (noise == 0)


def test_directions_differ():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3))
    y = x + rng.exponential(size=(30, 1)) * rng.standard_normal((30, 3))
    found = retrieval_accuracy(x, y, neighbours=2)
    assert found == retrieval_by_loops(x, y, 2)
    assert found.forward != found.backward


def test_a_collapsed_space_scores_chance():
    """All scores tie: the first of them is no find. (An argmax would call word 0 found, `>=` every word.)"""
    x, y = torch.ones(50, 3), torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert retrieval_accuracy(torch.ones(50, 3), torch.ones(50, 3)) == Retrieval(forward=0.02, backward=0.02)
    found = retrieval_accuracy(x, y)
    assert found.forward <= 0.02
    assert found.backward == pytest.approx(0.02)


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
    found, order = retrieval_accuracy(x, y, neighbours=3), rng.permutation(20)
    lengths = rng.uniform(0.5, 2, (20, 1))
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert retrieval_accuracy(lengths * x @ rotation, 3 * y @ rotation, neighbours=3) == found
    assert retrieval_accuracy(x[order], y[order], neighbours=3) == found
    assert retrieval_accuracy(y, x, neighbours=3) == Retrieval(forward=found.backward, backward=found.forward)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 4))
    y = x + rng.standard_normal((30, 4))
    whole = retrieval_accuracy(x, y)
    monkeypatch.setattr("infoflow.subjects.alignment.measures._evaluate._SCORES_AT_ONCE", 70)
    assert retrieval_accuracy(x, y) == whole


def test_unequal_numbers_are_refused():
    with pytest.raises(UserError, match="Got 12 and 11"):
        retrieval_accuracy(torch.rand(12, 2), torch.rand(11, 2))
