"""The fallback gives the factors that divide and conquer would have given."""

import pytest
import torch


@pytest.fixture
def no_convergence(monkeypatch):
    def give_up(*_args, **_keywords):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "svd", give_up)


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7)])
def test_without_convergence_the_factors_are_right(no_convergence, shape) -> None:
    from infoflow.representations._svd import thin_svd

    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left, singular, right = thin_svd(matrix)
    torch.testing.assert_close(left @ singular.diag() @ right, matrix)
    torch.testing.assert_close(singular, torch.linalg.svdvals(matrix))


def test_pwcca_of_too_few_tokens_survives(no_convergence) -> None:
    from infoflow.representations import pwcca

    x, y = torch.randn(2, 20, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with pytest.warns(UserWarning, match="biased"):
        assert pwcca(x, y) == pytest.approx(1.0)
