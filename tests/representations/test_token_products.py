"""Products over tokens equal the plain ones, in every memory layout."""

import pytest
import torch

from infoflow.representations._views import by_direction, gram, product


def views(dtype, widths=(7, 5), rows=200):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype) for width in widths]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_product(dtype, transposed) -> None:
    x, y = views(dtype)
    expected = x.double().mT @ y.double()
    if transposed:
        x, y = by_direction(x), by_direction(y)
    torch.testing.assert_close(product(x, y).double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(product(x[10:60], y[10:60]), x[10:60].mT @ y[10:60], rtol=1e-5, atol=1e-5)


def test_product_without_directions_is_empty() -> None:
    assert product(torch.zeros(40, 0), torch.zeros(40, 3)).shape == (0, 3)
    assert product(torch.zeros(40, 3), torch.zeros(40, 0)).shape == (3, 0)
    assert not product(torch.zeros(0, 40), torch.zeros(0, 3)).any()


@pytest.mark.parametrize("width", [0, 1, 3, 4, 5, 9, 16])
def test_gram(width) -> None:
    (x,) = views(torch.float64, (width,))
    torch.testing.assert_close(gram(x), x.mT @ x)


def test_by_direction_keeps_values() -> None:
    (x,) = views(torch.float64, (6,))
    kept = by_direction(x)
    assert kept.dtype == torch.float32
    assert kept.mT.is_contiguous()
    assert torch.equal(kept, x.float())
