"""CKA, Procrustes and RSA."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group, spearmanr

from infoflow.foundation import UserError
from infoflow.representations import linear_cka, procrustes_distance, rsa

views = st.tuples(st.integers(0, 1000), st.integers(5, 30), st.integers(1, 8), st.integers(1, 8))


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def related_views(seed, n, p, q):
    x = gaussian(n, p, seed=seed)
    return x, x @ gaussian(p, q, seed=seed + 1) + gaussian(n, q, seed=seed + 2)


def cka_by_gram(x, y):
    """The definition with n × n Gram matrices."""
    n = len(x)
    centre = torch.eye(n).to(x) - 1 / n
    k, gram = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    return float((k * gram).sum() / (k.norm() * gram.norm()))


def hsic_debiased_by_gram(x, y):
    """Song et al.'s estimator, term by term."""
    n = len(x)
    k, gram = x @ x.T, y @ y.T
    k, gram, one = k - k.diag().diag(), gram - gram.diag().diag(), torch.ones(n, dtype=x.dtype)
    trace = (k @ gram).trace()
    product = (one @ k @ one) * (one @ gram @ one) / ((n - 1) * (n - 2))
    return float((trace + product - 2 / (n - 2) * (one @ k @ gram @ one)) / (n * (n - 3)))


@settings(max_examples=30, deadline=None)
@given(views)
def test_cka_agrees_with_definition(shape):
    x, y = related_views(*shape)
    assert linear_cka(x, y) == pytest.approx(cka_by_gram(x, y), abs=1e-10)


@settings(max_examples=30, deadline=None)
@given(views)
def test_debiased_cka_agrees_with_definition(shape):
    x, y = related_views(*shape)
    scale = hsic_debiased_by_gram(x, x) * hsic_debiased_by_gram(y, y)
    if min(hsic_debiased_by_gram(x, x), hsic_debiased_by_gram(y, y)) > 0.01:
        expected = hsic_debiased_by_gram(x, y) / math.sqrt(scale)
        assert linear_cka(x, y, debiased=True) == pytest.approx(expected, abs=1e-8)


def test_only_the_debiased_cka_of_independent_views_is_near_zero():
    pairs = [(gaussian(60, 40, seed=2 * i), gaussian(60, 40, seed=2 * i + 1)) for i in range(20)]
    assert np.mean([linear_cka(x, y) for x, y in pairs]) > 0.3
    debiased = [linear_cka(x, y, debiased=True) for x, y in pairs]
    assert abs(np.mean(debiased)) < 0.02
    assert min(debiased) < 0


@pytest.mark.parametrize("debiased", [False, True])
def test_cka_of_a_view_without_variation_is_undefined(debiased):
    with pytest.warns(UserWarning, match="CKA is undefined"):
        assert math.isnan(linear_cka(gaussian(10, 3), torch.ones(10, 2), debiased=debiased))


def test_debiased_cka_needs_four_tokens():
    with pytest.raises(UserError, match=r"at least 4 tokens\. Got 3"):
        linear_cka(gaussian(3, 2), gaussian(3, 2), debiased=True)


def procrustes_by_search(x, y):
    """The best rotation by SVD, then the angle between x and the rotated y."""
    x, y = (view - view.mean(0) for view in (x, y))
    width = max(x.shape[1], y.shape[1])
    x, y = (torch.nn.functional.pad(view, (0, width - view.shape[1])) for view in (x, y))
    left, _, right = torch.linalg.svd(y.T @ x)
    rotated = y @ (left @ right)
    return math.acos(min(1, float((x * rotated).sum() / (x.norm() * rotated.norm()))))


@settings(max_examples=30, deadline=None)
@given(views)
def test_procrustes_agrees_with_the_best_rotation(shape):
    x, y = related_views(*shape)
    assert procrustes_distance(x, y) == pytest.approx(procrustes_by_search(x, y), abs=1e-7)


def test_procrustes_is_a_metric():
    a, b, c = (gaussian(20, 4, seed=seed) for seed in range(3))
    assert procrustes_distance(a, b) == pytest.approx(procrustes_distance(b, a), abs=1e-12)
    assert procrustes_distance(a, c) <= procrustes_distance(a, b) + procrustes_distance(b, c)


def test_procrustes_needs_variation():
    with pytest.raises(UserError, match="y must vary"):
        procrustes_distance(gaussian(5, 2), torch.zeros(5, 2))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "correlation"])
def test_rsa_agrees_with_scipy(metric):
    x, y = related_views(3, 40, 6, 4)
    expected = spearmanr(pdist(x.numpy(), metric), pdist(y.numpy(), metric)).statistic
    assert rsa(x, y, metric=metric) == pytest.approx(expected, abs=1e-12)
    assert rsa(x.float(), y.float().numpy(), metric=metric) == pytest.approx(expected, abs=1e-4)


def test_rsa_gives_ties_their_average_rank():
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])  # ten pairs, four distances
    y = torch.tensor([[0.0], [2.0], [1.0], [3.0], [9.0]])
    expected = spearmanr(pdist(x.numpy()), pdist(y.numpy())).statistic
    assert rsa(x, y, metric="euclidean") == pytest.approx(expected, abs=1e-12)


def test_rsa_refuses_what_has_no_direction():
    x = gaussian(5, 3)
    with pytest.raises(UserError, match="1 rows have no direction"):
        rsa(torch.cat([x[:4], torch.zeros(1, 3)]), x)
    with pytest.raises(UserError, match="at least 3 tokens"):
        rsa(x[:2], x[:2])
    with pytest.raises(UserError, match="metric must be"):
        rsa(x, x, metric="manhattan")


@pytest.mark.parametrize(
    ("measure", "best"),
    [(linear_cka, 1), (lambda x, y: linear_cka(x, y, debiased=True), 1), (procrustes_distance, 0)],
)
def test_rotation_scale_and_shift_do_not_matter(measure, best):
    x, y = related_views(7, 50, 6, 5)
    rotation = torch.from_numpy(ortho_group(6, seed=0).rvs())
    moved = 3 * x @ rotation + 7
    assert measure(moved, y) == pytest.approx(measure(x, y), abs=1e-10)
    assert measure(moved, x) == pytest.approx(best, abs=1e-6)
    stretched = x * torch.linspace(1, 9, 6, dtype=torch.float64)
    assert abs(measure(stretched, y) - measure(x, y)) > 1e-3


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "correlation"])
def test_rsa_ignores_scale(metric):
    x, y = related_views(7, 50, 6, 5)
    assert rsa(3 * x, y, metric=metric) == pytest.approx(rsa(x, y, metric=metric), abs=1e-12)
    assert rsa(x, x, metric=metric) == pytest.approx(1, abs=1e-12)


ROUNDING = np.full((7, 3), 0.1)  # its column means are not exactly 0.1


def test_a_constant_view_is_constant_though_its_mean_rounds():
    assert (ROUNDING - ROUNDING.mean(0)).any()
    with pytest.warns(UserWarning, match="CKA is undefined"):
        assert math.isnan(linear_cka(ROUNDING, gaussian(7, 2)))
    with pytest.raises(UserError, match="x must vary"):
        procrustes_distance(ROUNDING, gaussian(7, 2))


def test_rows_that_are_constant_up_to_rounding_have_no_correlation():
    x = gaussian(7, 3).numpy()
    x[2] = 0.1
    with pytest.raises(UserError, match="1 rows have no direction"):
        rsa(x, gaussian(7, 3), metric="correlation")


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_equal_angles_tie_whatever_their_rounding(metric):
    """A view of few distinct angles, each row scaled by another factor."""
    scale = np.random.default_rng(0).uniform(0.1, 9, (60, 1))
    x = np.eye(4)[np.arange(60) % 4] + np.eye(4)[np.arange(60) // 4 % 4]
    y = gaussian(60, 5).numpy()
    exact = spearmanr(pdist(x, metric).round(9), pdist(y, metric)).statistic
    assert rsa(x * scale, y, metric=metric) == pytest.approx(exact, abs=1e-6)
    assert rsa((x * scale).astype(np.float32), y, metric=metric) == pytest.approx(exact, abs=0.05)


def test_rsa_of_several_blocks_agrees_with_scipy(monkeypatch):
    monkeypatch.setattr("infoflow.representations._rsa._ROWS_AT_ONCE", 7)
    x, y = related_views(3, 40, 6, 4)
    expected = spearmanr(pdist(x.numpy(), "cosine"), pdist(y.numpy(), "cosine")).statistic
    assert rsa(x, y) == pytest.approx(expected, abs=1e-12)
