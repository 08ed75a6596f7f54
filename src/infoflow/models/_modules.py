"""Modules of a model: parameters, evaluation mode, hooks, states of blocks; fast linear layers, extremes of rows."""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from infoflow._transformers import transformers


def learning_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that an optimiser changes, by name; tied parameters appear once."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module returns to its own mode."""
    modes = [(child, child.training) for child in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            yield
    finally:
        for child, mode in modes:
            child.training = mode


@contextmanager
def without_remarks() -> Iterator[None]:
    """Silence transformers' log and progress bars: infoflow reports what matters, and has its own display."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove the hooks at the end of the `with` block."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def states_read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """The states among a block's arguments: the first argument."""
    return args[0] if args else kwargs["hidden_states"]


def reading(args: tuple[Any, ...], kwargs: dict[str, Any], states: Tensor) -> Arguments:
    """A block's arguments with its states replaced."""
    return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})


def states_of(output: Any) -> Tensor:
    """The states that a block returns, either alone or as the first of several results."""
    return output if isinstance(output, Tensor) else output[0]


def with_states(output: Any, states: Tensor) -> Any:
    """A block's result with its states replaced."""
    return states if isinstance(output, Tensor) else (states, *output[1:])


def run_again(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The states from one more run of a block, hidden from hooks and later blocks."""
    own = {name: value.copy() if isinstance(value, UserDict) else value for name, value in kwargs.items()}
    return states_of(block.forward(*args, **own))


def shared_keys(kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Keys and values that later blocks also attend to (Gemma 4), by argument: blocks pass on a dictionary."""
    return {name: dict(value) for name, value in kwargs.items() if isinstance(value, UserDict)}


@contextmanager
def returning(
    module: nn.Module, output: Callable[[], Any], shared: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[None]:
    """Make the module return only `output` and pass on the `shared` keys and values."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        for name, kept in (shared or {}).items():
            if name in kwargs:
                kwargs[name].update(kept)
        return output()

    saved = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if saved is None:
            del module.forward
        else:
            module.forward = saved


@contextmanager
def all_returning(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Make each module return only its output."""
    with ExitStack() as stack:
        for module, output in outputs.items():
            stack.enter_context(returning(module, lambda output=output: output))
        yield


# The extreme of each row: NumPy finds it in a tenth of the time of torch on a CPU (1,024 rows of 500, 512 of 2,000).


def argmax(rows: Float[Tensor, "*row column"]) -> Int[Tensor, " *row"]:
    """`rows.argmax(-1)`: the index of the first of the largest numbers."""
    return _extreme(rows, "argmax")


def argmin(rows: Float[Tensor, "*row column"]) -> Int[Tensor, " *row"]:
    """`rows.argmin(-1)`: the index of the first of the smallest numbers."""
    return _extreme(rows, "argmin")


def _extreme(rows: Tensor, name: str) -> Tensor:
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        return torch.from_numpy(getattr(rows.detach().numpy(), name)(-1))
    return getattr(rows, name)(-1)


# Linear layers in float32 with the faster of PyTorch's two matrix-product libraries.
#
# PyTorch passes float32 products to MKL, which uses AVX-512 only on Intel's processors. oneDNN, also part of PyTorch,
# uses it on all: on one core of an AMD EPYC (Zen 5) it reached 180 to 220 GFLOP/s from 64 rows up, conversions
# included, and MKL 95 to 100, with errors of the same size. On one core of an Intel Xeon (Cascade Lake) MKL reached 72
# to 124, oneDNN with its conversions 64 to 102, so nothing changes there.


_LEAST_ROWS = 32
"""With fewer rows, the conversion to and from oneDNN's format costs more than it saves."""


class FastLinear(TorchFunctionMode):
    """Inside `with FastLinear():` float32 `linear` layers on the CPU run through oneDNN, where that is faster.

    Nothing changes if gradients are recorded, in other precisions, or on other devices. No module is modified: the mode
    applies to all code inside the block, on this thread.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.linear and not kwargs and not torch.is_autocast_enabled("cpu"):
            return _in_few_shapes(*args)
        return func(*args, **kwargs)


def fast_linear(
    x: Float[Tensor, "*row input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, " output"] | None = None
) -> Float[Tensor, "*row output"]:
    r"""$x W^\top + b$ with the faster of PyTorch's product libraries."""
    recorded = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (x, weight, bias))
    if recorded or not _suits(x, weight):
        return nn.functional.linear(x, weight, bias)
    return _through_onednn(x, weight, bias)


def _through_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Equals `linear(x.to_mkldnn(), weight, bias).to_dense()` exactly, with ordinary tensors.

    Copying the result out of oneDNN's format took several times as long as the product.
    """
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), bias, "none", [], "")


def _in_few_shapes(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`fast_linear` with its rows padded to one of eight sizes per power of two.

    oneDNN caches a kernel for every shape, about 0.2 MB each and up to a thousand: batches of a corpus have that many
    shapes. Padding adds about 3 % of rows.
    """
    if not _suits(x, weight):
        return nn.functional.linear(x, weight, bias)
    rows = x.flatten(0, -2)
    step = max(_LEAST_ROWS, 2 ** (len(rows) - 1).bit_length() // 16)
    missing = -len(rows) % step
    filled = nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows
    return fast_linear(filled, weight, bias)[: len(rows)].unflatten(0, x.shape[:-1])


@cache
def _onednn_is_faster() -> bool:
    """Whether oneDNN's products are faster on this processor: it has AVX-512 that MKL does not use."""
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    mkl_has_it = torch.backends.mkl.is_available() and "Intel" in str(torch.cpu.get_capabilities().get("cpu_name", ""))
    return torch.backends.mkldnn.is_available() and has_avx512 and not mkl_has_it


def _suits(x: Tensor, weight: Tensor) -> bool:
    return (
        _onednn_is_faster()
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.ndim > 1
        and x.shape[-1] == weight.shape[-1]  # else the ordinary call reports the error
        and x.numel() >= _LEAST_ROWS * x.shape[-1]
        and weight.numel() > 0  # a layer that lost all its heads has empty projections
    )
