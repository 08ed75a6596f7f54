"""CKA, Procrustes and RSA."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group, spearmanr

from infoflow.foundation import UserError
from infoflow.representations import cca_correlations, linear_cka, minibatch_cka, procrustes_distance, rsa

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


@settings(max_examples=20, deadline=None)
@given(views)
def test_a_shift_does_not_change_the_debiased_cka(shape):
    x, y = related_views(*shape)
    centred_x, centred_y = x - x.mean(0), y - y.mean(0)
    assert hsic_debiased_by_gram(x, y) == pytest.approx(hsic_debiased_by_gram(centred_x, centred_y), abs=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five tokens may leave no self-similarity, shifted or not
        expected = linear_cka(x, y, debiased=True)
        assert linear_cka(x + 5, y - 3, debiased=True) == pytest.approx(expected, abs=1e-7, nan_ok=True)


def test_a_self_term_that_is_not_positive_has_no_debiased_cka():
    """Four points on the corners of a tetrahedron: all pairs alike, nothing beyond chance."""
    corners = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    assert hsic_debiased_by_gram(corners, corners) <= 0
    with pytest.warns(UserWarning, match="CKA is undefined"):
        assert math.isnan(linear_cka(corners, gaussian(4, 2), debiased=True))
    with pytest.warns(UserWarning, match="CKA is undefined"):
        assert math.isnan(minibatch_cka([(corners, gaussian(4, 2))]))


def test_minibatch_cka_divides_sums_and_not_each_batch():
    x, y = related_views(4, 48, 5, 3)
    batches = list(zip(x.split([8, 16, 24]), y.split([8, 16, 24]), strict=True))
    cross, self_x, self_y = (
        sum(hsic_debiased_by_gram(*(pair[side] for side in sides)) for pair in batches)
        for sides in ((0, 1), (0, 0), (1, 1))
    )
    assert minibatch_cka(iter(batches)) == pytest.approx(cross / math.sqrt(self_x * self_y), abs=1e-9)
    mean_of_ratios = np.mean([linear_cka(a, b, debiased=True) for a, b in batches])
    assert abs(minibatch_cka(batches) - mean_of_ratios) > 1e-3


def test_minibatch_cka_of_random_batches_is_that_of_all_rows():
    """Unbiased in each term, where the plain estimate of batches is far above."""
    x, y = related_views(4, 4000, 30, 30)
    batches = list(zip(x.split(40), y.split(40), strict=True))
    whole = linear_cka(x, y, debiased=True)
    assert minibatch_cka(batches) == pytest.approx(whole, abs=0.01)
    assert np.mean([linear_cka(a, b) for a, b in batches]) > whole + 0.05
    assert minibatch_cka([(x, y)]) == pytest.approx(whole, abs=1e-12)


def test_minibatch_cka_may_be_negative():
    values = [minibatch_cka([(gaussian(20, 9, seed=3 * i), gaussian(20, 9, seed=3 * i + 1))]) for i in range(20)]
    assert min(values) < -0.05


def test_minibatch_cka_refuses_small_batches():
    with pytest.raises(UserError, match=r"Each batch needs at least 4 tokens\. Got 3"):
        minibatch_cka([(gaussian(20, 2), gaussian(20, 2)), (gaussian(3, 2), gaussian(3, 2))])


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


def shape_metric(x, y, alpha, euclidean):
    """Williams et al.'s metric as their code computes it: pad, partly whiten, rotate, measure."""
    width = max(x.shape[1], y.shape[1])

    def partly_white(view):
        view = torch.nn.functional.pad(view - view.mean(0), (0, width - view.shape[1]))
        values, vectors = torch.linalg.eigh(view.T @ view)
        root = torch.where(values > 1e-9 * values[-1], values.clamp(min=1e-30).rsqrt(), torch.zeros(1).to(view))
        mixed = view @ vectors @ (alpha * torch.eye(width).to(view) + (1 - alpha) * root.diag()) @ vectors.T
        return mixed * view.norm() / mixed.norm()

    x, y = partly_white(x), partly_white(y)
    left, _, right = torch.linalg.svd(y.T @ x)
    rotated = y @ (left @ right)
    if euclidean:
        return float((x - rotated).norm())
    return math.acos(min(1, float((x * rotated).sum() / (x.norm() * rotated.norm()))))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["angle", "size-and-shape"])
def test_partly_whitened_shapes_agree_with_the_best_rotation(alpha, kind):
    x, y = related_views(5, 40, 6, 4)
    expected = shape_metric(x, y, alpha, euclidean=kind == "size-and-shape")
    assert procrustes_distance(x, y, kind=kind, alpha=alpha) == pytest.approx(expected, abs=1e-7)


def test_a_fully_whitened_shape_is_canonical_correlation():
    x, y = related_views(5, 200, 6, 6)
    angle = procrustes_distance(x @ gaussian(6, 6, seed=8) + 1, y, alpha=0)
    assert math.cos(angle) == pytest.approx(float(cca_correlations(x, y).mean()), abs=1e-9)


def test_size_counts_where_it_should():
    x, y = related_views(7, 50, 6, 5)
    rotation = torch.from_numpy(ortho_group(6, seed=0).rvs())
    distance = procrustes_distance(x, y, kind="size-and-shape")
    assert procrustes_distance(x @ rotation + 7, y, kind="size-and-shape") == pytest.approx(distance, abs=1e-9)
    norm = float((x - x.mean(0)).norm())
    assert procrustes_distance(x, 3 * x, kind="size-and-shape") == pytest.approx(2 * norm, abs=1e-9)
    assert procrustes_distance(1e200 * x, 1e200 * x, kind="size-and-shape") == pytest.approx(0, abs=1e194)
    assert procrustes_distance(torch.ones(5, 2), torch.zeros(5, 2), kind="size-and-shape") == 0


@pytest.mark.parametrize(
    ("settings_", "message"), [({"kind": "shape"}, "kind must be"), ({"alpha": 1.5}, r"alpha must lie in \[0, 1\]")]
)
def test_impossible_shapes_are_refused(settings_, message):
    with pytest.raises(UserError, match=message):
        procrustes_distance(gaussian(9, 2), gaussian(9, 2), **settings_)


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


def rsa_by_hand(x, y):
    """Every pair's distance, every distance's rank by counting, Pearson's correlation: as rsatoolbox defines it."""

    def distances(view):
        n = len(view)
        return [1 - np.corrcoef(view[i], view[j])[0, 1] for i in range(n) for j in range(i + 1, n)]

    def ranks(values):
        return [sum((other < value) + (other == value) / 2 for other in values) for value in values]

    return np.corrcoef(ranks(distances(x)), ranks(distances(y)))[0, 1]


def test_rsa_agrees_with_counting():
    x, y = (view.numpy() for view in related_views(2, 15, 6, 4))
    assert rsa(x, y, metric="correlation") == pytest.approx(rsa_by_hand(x, y), abs=1e-12)


def test_rsa_of_shuffled_items_is_near_zero():
    """Mantel's null: the items of one matrix permuted, rows and columns alike."""
    x, y = related_views(2, 60, 6, 4)
    permuted = [rsa(x, y[torch.randperm(60, generator=torch.Generator().manual_seed(i))]) for i in range(50)]
    assert abs(np.mean(permuted)) < 0.02
    assert rsa(x, y) > max(permuted)


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
    ("measure", "best"), [(linear_cka, 1), (lambda x, y: linear_cka(x, y, debiased=True), 1), (procrustes_distance, 0)]
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
