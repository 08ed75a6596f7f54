import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.representations import cca_correlations, pwcca, svcca


def gaussian(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cca_by_qr(x, y, tolerance=1e-9):
    """The specification, step by step: centre, orthonormalise by SVD, SVD of the overlap."""

    def orthonormal(view):
        left, singular, _ = np.linalg.svd(view, full_matrices=False)
        return left[:, singular > tolerance * singular[0]]

    x, y = (np.asarray(view, dtype=np.float64) for view in (x, y))
    x, y = x - x.mean(0), y - y.mean(0)
    q_x, q_y = orthonormal(x), orthonormal(y)
    left, rho, right = np.linalg.svd(q_x.T @ q_y, full_matrices=False)
    return np.clip(rho, 0, 1), q_x @ left, q_y @ right.T, x, y


def pwcca_by_qr(x, y, side):
    rho, h_x, h_y, x, y = cca_by_qr(x, y)
    values = {}
    for name, h, view in (("x", h_x, x), ("y", h_y, y)):
        alpha = np.array([sum(abs(h[:, i] @ view[:, j]) for j in range(view.shape[1])) for i in range(len(rho))])
        values[name] = (alpha * rho).sum() / alpha.sum()
    return (values["x"] + values["y"]) / 2 if side == "mean" else values[side]


def quiet_pwcca(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pwcca(*args, **kwargs)


def related_views(n, p, q, seed, noise=1.0):
    x = gaussian(n, p, seed=seed) @ gaussian(p, p, seed=seed + 1)
    return x, x @ gaussian(p, q, seed=seed + 2) + noise * gaussian(n, q, seed=seed + 3) + 5


@pytest.mark.parametrize("side", ["mean", "x", "y"])
@pytest.mark.parametrize(
    ("n", "p", "q"), [(300, 7, 7), (300, 4, 9), (300, 9, 4), (40, 30, 5), (10, 15, 12), (200, 1, 3)]
)
def test_agrees_with_qr(n, p, q, side):
    x, y = related_views(n, p, q, seed=n)
    assert quiet_pwcca(x, y, side=side) == pytest.approx(pwcca_by_qr(x, y, side), abs=1e-10)


@pytest.mark.parametrize("side", ["mean", "x", "y"])
def test_agrees_with_qr_where_views_are_degenerate(side):
    """Constant and repeated columns, and widths that the ranks do not reach."""
    x, y = related_views(200, 6, 5, seed=1)
    x = torch.cat([x, x[:, :2], torch.full((200, 1), 0.1), x[:, :1] - x[:, 1:2]], dim=1)
    y = torch.cat([y[:, :2], y[:, :1] + y[:, 1:2], torch.zeros(200, 1)], dim=1)
    assert len(cca_correlations(x, y)) == 2
    np.testing.assert_allclose(cca_correlations(x, y), cca_by_qr(x, y)[0], atol=1e-10)
    assert pwcca(x, y, side=side) == pytest.approx(pwcca_by_qr(x, y, side), abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 8), st.integers(2, 40))
def test_any_shape_agrees_with_qr(seed, p, q, extra):
    # With fewer rows several correlations are 1, and the weights depend on the choice of directions among them.
    x, y = related_views(p + q + extra, p, q, seed)
    value = quiet_pwcca(x, y)
    assert -1e-9 <= value <= 1 + 1e-9
    assert value == pytest.approx(pwcca_by_qr(x, y, "mean"), abs=1e-7)


@pytest.mark.parametrize("condition", [1e0, 1e4, 1e7])
def test_invertible_affine_map_gives_exactly_one(condition):
    """Also where the map is so ill conditioned that the covariance alone would lose the smallest directions."""
    x = gaussian(1000, 16)
    rotate, _ = torch.linalg.qr(gaussian(16, 16, seed=1))
    stretch = torch.logspace(0, -float(np.log10(condition)), 16, dtype=torch.float64)
    y = (x * stretch) @ rotate + 3
    assert pwcca(x, y) == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(cca_correlations(x, y), torch.ones(16, dtype=torch.float64), atol=1e-6, rtol=0)


def test_only_the_weighting_view_feels_a_linear_map():
    x, y = related_views(500, 6, 6, seed=3, noise=3)
    mapped = y @ gaussian(6, 6, seed=9) - 2
    assert pwcca(x, mapped, side="x") == pytest.approx(pwcca(x, y, side="x"), abs=1e-10)
    assert abs(pwcca(x, mapped, side="y") - pwcca(x, y, side="y")) > 1e-3


def test_sides_mirror_each_other():
    x, y = related_views(500, 6, 4, seed=3)
    assert pwcca(x, y, side="x") == pytest.approx(pwcca(y, x, side="y"), abs=1e-12)
    assert pwcca(x, y) == pytest.approx((pwcca(x, y, side="x") + pwcca(x, y, side="y")) / 2, abs=1e-12)


@pytest.mark.parametrize(("ratio", "published"), [(1.5, 0.757), (2, 0.640), (5, 0.384), (20, 0.191), (40, 0.133)])
def test_bias_of_independent_gaussians(ratio, published):
    """The specification's measured table for 64 dimensions."""
    n = int(64 * ratio)
    values = [quiet_pwcca(gaussian(n, 64, seed=2 * i), gaussian(n, 64, seed=2 * i + 1)) for i in range(6)]
    assert np.mean(values) == pytest.approx(published, abs=0.012)


def test_few_rows_are_trivially_similar_and_warned_about():
    with pytest.warns(UserWarning, match="biased towards similarity"):
        assert pwcca(gaussian(20, 30), gaussian(20, 25, seed=1)) == pytest.approx(1, abs=1e-8)


def test_enough_rows_are_not_warned_about(recwarn):
    pwcca(gaussian(300, 30), gaussian(300, 30, seed=1))
    assert not recwarn.list


def test_float32_and_numpy_agree_with_float64():
    x, y = related_views(400, 6, 5, seed=2)
    exact = pwcca(x, y)
    assert pwcca(x.float(), y.float()) == pytest.approx(exact, abs=1e-5)
    assert pwcca(x.numpy(), y.numpy()) == pytest.approx(exact, abs=1e-12)
    assert pwcca(x.float().numpy(), y.float().numpy()) == pytest.approx(exact, abs=1e-5)


def test_huge_columns_do_not_hide_small_ones():
    x, y = related_views(400, 6, 5, seed=2)
    scale = torch.tensor([1e9, 1, 1e-7, 1, 1e4, 1], dtype=torch.float64)
    torch.testing.assert_close(cca_correlations(x * scale, y), cca_correlations(x, y), atol=1e-7, rtol=0)


def test_duplicated_float32_columns_are_no_new_direction():
    """Sums computed in float32 differ in the last bit: rounding must not become a variate."""
    x = gaussian(500, 5, dtype=torch.float32)
    x = torch.cat([x, x[:, :1] + x[:, 1:2] + x[:, 2:3]], dim=1)
    assert len(cca_correlations(x, x)) == 5


def test_svcca_of_all_variance_is_mean_cca():
    x, y = related_views(400, 6, 5, seed=2)
    assert svcca(x, y, variance=1) == pytest.approx(float(cca_correlations(x, y).mean()), abs=1e-9)


def test_svcca_keeps_the_fewest_directions_that_explain_enough():
    x = gaussian(400, 3) * torch.tensor([10.0, 1.0, 0.01])
    y = gaussian(400, 3, seed=1)
    y[:, 0] = x[:, 0]
    two_directions = torch.linalg.svd(x - x.mean(0), full_matrices=False)[0][:, :2]
    expected = cca_correlations(two_directions, y).mean()
    assert svcca(x, y, variance=0.995) == pytest.approx(float(expected), abs=1e-9)


def test_mistakes_are_named():
    x = gaussian(30, 3)
    with pytest.raises(UserError, match="Got 30 and 20 rows"):
        pwcca(x, x[:20])
    with pytest.raises(UserError, match="shape \\(30,\\)"):
        pwcca(x[:, 0], x)
    with pytest.raises(UserError, match="NaN or infinity"):
        pwcca(x, x / 0)
    with pytest.raises(UserError, match="must vary"):
        pwcca(x, torch.ones(30, 2))
    with pytest.raises(UserError, match='side must be "mean", "x" or "y"'):
        pwcca(x, x, side="left")


SQUARE = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64).repeat(30, 1)


def test_a_deficient_view_that_shares_nothing_has_similarity_zero():
    x = torch.stack([SQUARE[:, 0], torch.full((120,), 5.0)], dim=1)
    assert pwcca(x, SQUARE[:, 1:]) == 0
    repeated = SQUARE[:, :1].repeat(1, 3)
    assert pwcca(repeated, SQUARE[:, 1:]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("side", ["mean", "x", "y"])
def test_directions_of_correlation_zero_keep_their_weight(side):
    """Beside a null direction: the two must not mix."""
    x = torch.cat([SQUARE, SQUARE[:, :1] + SQUARE[:, 1:]], dim=1)
    y = torch.stack([SQUARE[:, 0], SQUARE.prod(1)], dim=1)
    assert pwcca(x, y, side=side) == pytest.approx(pwcca_by_qr(x, y, side), abs=1e-12)
    assert 0.3 < pwcca(x, y, side=side) < 0.7


def test_views_may_be_read_only_reversed_or_of_no_more_than_rounding():
    x, y = (view.numpy() for view in related_views(300, 4, 3, seed=1))
    expected = pwcca(x, y)
    assert pwcca(x[::-1], y[::-1]) == pytest.approx(expected, abs=1e-12)
    y.flags.writeable = False
    assert pwcca(np.c_[x, np.full(300, 0.1)], y) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(UserError, match="x must vary"):
        pwcca(np.full((300, 3), 0.1), y)


def test_directions_are_whitened_and_means_stay_out():
    """Where a widely used implementation goes wrong: directions without Syy^-1/2, and the mean added back before QR."""
    x, y = related_views(400, 6, 6, seed=2, noise=3)
    value = pwcca(x, y, side="x")
    assert value == pytest.approx(pwcca_by_qr(x, y, "x"), abs=1e-10)
    assert pwcca(x + 1000, y - 50, side="x") == pytest.approx(value, abs=1e-8)
    x_c, y_c = (view - view.mean(0) for view in (x, y))
    roots = [torch.linalg.eigh(view.T @ view) for view in (x_c, y_c)]
    white_x, white_y = (vectors @ values.rsqrt().diag() @ vectors.T for values, vectors in roots)
    left, rho, _ = torch.linalg.svd(white_x @ x_c.T @ y_c @ white_y)
    with_mean = torch.linalg.qr(x_c @ left + x.mean(0))[0]
    alpha = (with_mean.T @ x).abs().sum(1)
    assert abs(float(alpha @ rho / alpha.sum()) - value) > 1e-3


def test_small_columns_are_kept():
    """No variance is too small beside another column's: nothing is added to the covariance, nothing dropped."""
    x, y = related_views(400, 6, 5, seed=2)
    small = x * torch.tensor([1, 1, 1, 1, 1, 1e-9])
    np.testing.assert_allclose(cca_correlations(small, y), cca_correlations(x, y), atol=1e-8)
