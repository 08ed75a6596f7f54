import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.representations import _nearest, neighbour_agreement


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


def test_blocks_of_queries_change_nothing(monkeypatch):
    x, labels = gaussian(300, 4), np.arange(300) % 7
    whole = neighbour_agreement(x, labels, k=10)
    monkeypatch.setattr(_nearest, "_SCORES_AT_ONCE", 2000)
    assert neighbour_agreement(x, labels, k=10) == whole


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


def test_mistakes_are_named():
    x = gaussian(10, 3)
    with pytest.raises(UserError, match="Got 9 labels for 10 rows"):
        neighbour_agreement(x, list(range(9)))
    with pytest.raises(UserError, match="k must be at least 1"):
        neighbour_agreement(x, [0] * 10, k=0)
    with pytest.raises(UserError, match="few must be"):
        neighbour_agreement(x, [0] * 10, few="drop")
    with pytest.raises(UserError, match="metric must be"):
        neighbour_agreement(x, [0] * 10, metric="l1")
    with pytest.raises(UserError, match='the 51 rows that k = 50 with few="require" needs'):
        neighbour_agreement(x, [0] * 10)
