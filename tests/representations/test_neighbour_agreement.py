from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.representations import neighbour_agreement


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agreement_by_sorting(x, labels, k, few, metric):
    """Each row's neighbours by sorting all distances; None where no label has enough rows."""
    scores = []
    for i in range(len(x)):
        same = int((labels == labels[i]).sum()) - 1
        if same < (k if few == "require" else 1):
            continue
        if metric == "cosine":
            distance = [-float(x[i] @ x[j] / (x[i].norm() * x[j].norm())) for j in range(len(x))]
        else:
            distance = [float((x[i] - x[j]).norm()) for j in range(len(x))]
        order = [j for j in np.argsort(distance) if j != i]
        size = min(k, same) if few == "cap" else k
        score = sum(labels[j] == labels[i] for j in order[:size]) / size
        scores.append(score / min(1, same / k) if few == "normalise" else score)
    return np.mean(scores) if scores else None


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(3, 40),
    st.integers(1, 6),
    st.sampled_from(["require", "cap", "normalise"]),
    st.sampled_from(["cosine", "euclidean"]),
)
def test_agrees_with_definition(seed, n, k, few, metric):
    x = gaussian(n, 3, seed=seed) + 0.5
    labels = np.random.default_rng(seed).integers(0, 5, n)
    expected = agreement_by_sorting(x, labels, k, few, metric)
    if expected is None:
        with pytest.raises(UserError, match="No label has"):
            neighbour_agreement(x, labels, k=k, few=few, metric=metric)
    else:
        assert neighbour_agreement(x, labels, k=k, few=few, metric=metric) == pytest.approx(expected, abs=1e-12)


@pytest.fixture(params=["torch", "faiss"])
def library(request, monkeypatch):
    """Both ways to search where faiss is installed."""
    if request.param == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr("infoflow.representations._nearest.find_spec", lambda name: None)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("queries", "rows"), [(4096, 4096), (7, 11), (300, 5), (64, 100)])
def test_blocks_find_the_nearest(monkeypatch, library, metric, queries, rows):
    """Five rows to a block are fewer than the ten neighbours wanted."""
    for name, size in (("_QUERIES", queries), ("_ROWS", rows), ("_ROWS_BY_FAISS", rows)):
        monkeypatch.setattr(f"infoflow.representations._nearest.{name}", size)
    x, labels = tied()
    for k in (1, 3, 10):
        found = neighbour_agreement(x, labels, k=k, metric=metric)
        assert found == pytest.approx(by_sorting_all(metric, k), abs=1e-12)


def tied():
    """Points and their labels, three of them with each other at distance 0."""
    x, labels = gaussian(130, 4).float() + 0.3, np.random.default_rng(0).integers(0, 5, 130)
    x[5] = x[40] = x[41]
    labels[[5, 40, 41]] = 0
    return x, labels


@cache
def by_sorting_all(metric, k):
    x, labels = tied()
    return agreement_by_sorting(x.double(), labels, k, "require", metric)


def test_rows_in_falling_order_of_score_fill_a_block(monkeypatch):
    """Every row of a later block is better than all before: nothing is cut off."""
    monkeypatch.setattr("infoflow.representations._nearest.find_spec", lambda name: None)
    monkeypatch.setattr("infoflow.representations._nearest._ROWS", 10)
    angles = torch.linspace(3, 0, 50, dtype=torch.float64)
    x, labels = torch.stack([torch.cos(angles), torch.sin(angles)], dim=1), np.where(np.arange(50) < 36, 0, 1)
    assert neighbour_agreement(x, labels, k=12) == pytest.approx(
        agreement_by_sorting(x, labels, 12, "require", "cosine")
    )


def test_clear_groups_agree_and_noise_is_at_chance():
    labels = np.arange(600) % 6
    centres = 10 * gaussian(6, 8)
    assert neighbour_agreement(centres[labels] + gaussian(600, 8, seed=1), labels) == 1
    assert neighbour_agreement(gaussian(600, 8, seed=2), labels) == pytest.approx(1 / 6, abs=0.01)


def test_far_from_the_origin_euclidean_neighbours_are_still_right():
    """In float32 the expanded square would lose all digits here."""
    x = gaussian(200, 3).float()
    labels = (x[:, 0] > 0).long()
    assert neighbour_agreement(x + 1000, labels, k=5, metric="euclidean") == pytest.approx(
        neighbour_agreement((x + 1000).double(), labels, k=5, metric="euclidean"), abs=0.003
    )


def test_labels_of_any_kind():
    x = gaussian(20, 3)
    assert neighbour_agreement(x, ["a", "b"] * 10, k=3) == neighbour_agreement(x, torch.arange(20) % 2, k=3)
