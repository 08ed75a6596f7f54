"""The fallback gives the factors that divide and conquer would have given."""

import pytest
import torch

from infoflow.representations import correlations_svd, pwcca, thin_svd


@pytest.fixture
def no_convergence(monkeypatch):
    def give_up(*_args, **_keywords):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "svd", give_up)


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7)])
def test_without_convergence_the_factors_are_right(no_convergence, shape) -> None:
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left, singular, right = thin_svd(matrix)
    torch.testing.assert_close(left @ singular.diag() @ right, matrix)
    torch.testing.assert_close(singular, torch.linalg.svdvals(matrix))


def test_pwcca_of_too_few_tokens_survives(no_convergence) -> None:
    x, y = torch.randn(2, 20, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with pytest.warns(UserWarning, match="biased"):
        assert pwcca(x, y) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(6, 6), (7, 3), (3, 7), (0, 4)])
def test_correlations_by_their_squares_are_those_of_the_decomposition(shape) -> None:
    overlap = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 10
    left, singular, right = correlations_svd(overlap)
    torch.testing.assert_close(left @ singular.diag() @ right, overlap)
    torch.testing.assert_close(singular, torch.linalg.svdvals(overlap))
    identity = torch.eye(len(singular), dtype=torch.float64)
    torch.testing.assert_close(left.mT @ left, identity)
    torch.testing.assert_close(right @ right.mT, identity)


@pytest.mark.parametrize("least", [1e-4, 1e-9, 0.0])
def test_small_correlations_keep_orthonormal_directions(least) -> None:
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator))[0] for _ in range(2))
    rho = torch.tensor([1.0, 0.5, 0.5, 0.1, least], dtype=torch.float64)
    left, singular, _ = correlations_svd(u @ rho.diag() @ v)
    torch.testing.assert_close(singular, rho, rtol=1e-7, atol=1e-15)
    torch.testing.assert_close(left.mT @ left, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-7)
