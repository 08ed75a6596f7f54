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


@pytest.fixture(params=["torch", "faiss"])
def library(request, monkeypatch):
    """Both ways to search where faiss is installed."""
    if request.param == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr(_nearest, "find_spec", lambda name: None)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("queries", "rows"), [(4096, 4096), (7, 11), (300, 5), (64, 100)])
def test_blocks_find_the_nearest_in_order(monkeypatch, library, metric, queries, rows):
    """Five rows to a block are fewer than the ten neighbours wanted."""
    monkeypatch.setattr(_nearest, "_QUERIES", queries)
    monkeypatch.setattr(_nearest, "_ROWS", rows)
    monkeypatch.setattr(_nearest, "_ROWS_BY_FAISS", rows)
    x = gaussian(130, 4).float() + 0.3
    x[5] = x[40] = x[41]  # ties with the query itself
    chosen = torch.randperm(130, generator=torch.Generator().manual_seed(0))[:100]
    similarity = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).mT
    score = similarity if metric == "cosine" else -torch.cdist(x.double(), x.double())
    seen = []
    for found in _nearest.nearest(x, 10, metric, chosen):
        seen.append(found.queries)
        for query, neighbours in zip(found.queries, found.indices, strict=True):
            assert query not in neighbours
            assert len(set(neighbours.tolist())) == 10
            others = score[query].clone()
            others[query] = -torch.inf
            torch.testing.assert_close(score[query, neighbours], others.topk(10).values, atol=1e-5, rtol=0)
    assert torch.equal(torch.cat(seen), chosen)


def test_rows_in_falling_order_of_score_fill_a_block(monkeypatch):
    """Every row of a later block is better than all before: nothing is cut off."""
    monkeypatch.setattr(_nearest, "find_spec", lambda name: None)
    monkeypatch.setattr(_nearest, "_ROWS", 10)
    x = torch.stack([torch.cos(torch.linspace(3, 0, 50)), torch.sin(torch.linspace(3, 0, 50))], dim=1)
    (found,) = _nearest.nearest(x, 12, "cosine", torch.tensor([49]))
    assert found.indices[0].tolist() == list(range(48, 36, -1))


def test_fewer_rows_than_neighbours_give_all_others(library):
    (found,) = _nearest.nearest(gaussian(5, 3).float(), 10, "cosine", torch.arange(5))
    assert [sorted(row) for row in found.indices.tolist()] == [[j for j in range(5) if j != i] for i in range(5)]


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
