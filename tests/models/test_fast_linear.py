"""Layers through oneDNN give what they give without it, and only where they may go that way."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from infoflow.models import FastLinear, _modules, argmax, argmin, fast_linear
from infoflow.models._modules import _through_onednn


@pytest.fixture(params=["oneDNN", "MKL"])
def library(request, monkeypatch):
    """Both ways, whatever this processor would choose."""
    if request.param == "oneDNN" and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(_modules, "_onednn_is_faster", lambda: request.param == "oneDNN")
    return request.param


@pytest.fixture
def routed(monkeypatch):
    """Shapes of the inputs that go through oneDNN."""
    seen, product = [], _modules._through_onednn

    def spy(x, weight, bias):
        seen.append(tuple(x.shape))
        return product(x, weight, bias)

    monkeypatch.setattr(_modules, "_through_onednn", spy)
    return seen


def layer(inputs=6, outputs=5, bias=True):
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40, 6), (3, 20, 6), (2, 6)])
def test_the_layers_output_is_the_same(library, routed, bias, shape):
    module, x = layer(bias=bias), torch.randn(shape)
    with torch.inference_mode():
        expected = x.double() @ module.weight.double().mT + (module.bias.double() if bias else 0)
        with FastLinear():
            found = module(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert not found.is_mkldnn
    assert bool(routed) == (library == "oneDNN" and shape != (2, 6))


def test_strided_inputs(library):
    x, weight = torch.randn(6, 64).mT, torch.randn(6, 5).mT
    torch.testing.assert_close(fast_linear(x, weight), x @ weight.mT, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of PyTorch has no oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("strided", [True, False])
def test_the_bits_are_those_of_tensors_in_onednns_format(bias, strided):
    """The way that PyTorch documents; ours saves its copies."""
    generator = torch.Generator().manual_seed(0)
    for rows, inputs, outputs in [(32, 6, 5), (64, 64, 64), (100, 64, 256), (1024, 256, 64), (448, 7, 130)]:
        x, weight = torch.randn(rows, inputs, generator=generator), torch.randn(outputs, inputs, generator=generator)
        if strided:
            x, weight = x.mT.contiguous().mT, weight.mT.contiguous().mT
        offset = torch.randn(outputs, generator=generator) if bias else None
        with torch.inference_mode():
            expected = nn.functional.linear(x.to_mkldnn(), weight, offset).to_dense()
            assert torch.equal(_through_onednn(x, weight, offset), expected), (rows, inputs, outputs)


@pytest.mark.parametrize("case", ["gradients", "float64", "autocast", "outside"])
def test_what_stays_as_it_is(library, routed, case):
    dtype = torch.float64 if case == "float64" else torch.float32
    module, x = layer().to(dtype), torch.randn(64, 6, dtype=dtype)
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(case == "gradients"))
        if case == "autocast":
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        expected = module(x)
        if case != "outside":
            stack.enter_context(FastLinear())
        found = module(x)
    assert torch.equal(found, expected)
    assert found.requires_grad == (case == "gradients")
    assert not routed


def test_nothing_is_left_after_an_error(library, routed):
    with pytest.raises(ZeroDivisionError), FastLinear():
        _ = 1 / 0
    with torch.no_grad():
        layer()(torch.randn(64, 6))
    assert not routed


@pytest.mark.parametrize("shape", [(0, 6), (6, 0)])
def test_projections_to_and_from_nothing(shape):
    """A pruned layer without heads."""
    weight, x, bias = torch.randn(shape), torch.randn(64, shape[1]), torch.randn(shape[0])
    with torch.no_grad(), FastLinear():
        found = nn.functional.linear(x, weight, bias)
    assert torch.equal(found, nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [("AMD EPYC 9B45", "AVX512", True), ("Intel Xeon 2.50GHz", "AVX512", False), ("AMD EPYC 7B13", "AVX2", False)],
)
def test_onednn_is_for_avx512_that_mkl_does_not_use(monkeypatch, name, capability, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for part in ("mkl", "mkldnn"):
        monkeypatch.setattr(getattr(torch.backends, part), "is_available", lambda: True)
    assert _modules._onednn_is_faster.__wrapped__() is expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extremes_of_rows_are_the_first_of_equals(dtype) -> None:
    rows = torch.randint(0, 3, (4, 50, 7), generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[0, 0, 3] = torch.nan
    assert torch.equal(argmax(rows), rows.argmax(-1))
    assert torch.equal(argmin(rows), rows.argmin(-1))
