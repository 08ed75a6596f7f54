"""Rules of CP-LRP and AttnLRP as changes of the backward pass, so that gradient times input is the relevance."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from infoflow.foundation import UserError
from infoflow.models import AttentionCall, Model, tap

from ._leaves import ACTIVATIONS, CURVES, PRODUCTS, Norm, is_norm

Variant = Literal["cp-lrp", "attn-lrp"]

_TINY = 1e-10  # keeps f(x) / x finite at 0


@contextmanager
def backward_rules(model: Model, variant: Variant) -> Iterator[None]:
    r"""Forward passes inside the block are unchanged; their gradients follow the rules.

    | function | `"cp-lrp"` [@ali2022] | `"attn-lrp"` [@achtibat2024] |
    |---|---|---|
    | softmax attention | weights are constants | gradients of queries and keys ÷ 4, of values ÷ 2 |
    | LayerNorm, RMSNorm | deviation is a constant | the same |
    | activation | $x \cdot f(x)/x$, the quotient a constant | the same |
    | gated product $f(g) \cdot u$ | $f(g)$ is a constant | both factors get half |

    As in lxt, whose documentation says that layer-wise relevance propagation is covered by a patent that allows
    personal and scientific use.
    """
    with ExitStack() as stack:
        mode = _Rules(variant)
        for module in model.module.modules():
            if is_norm(module):
                stack.callback(module.register_forward_hook(_constant_deviation).remove)
            elif isinstance(module, ACTIVATIONS):
                stack.callback(module.register_forward_pre_hook(mode.enter).remove)
                stack.callback(module.register_forward_hook(mode.leave).remove)
        stack.enter_context(tap(model, on_attention=_ATTENTION[variant]))
        stack.enter_context(mode)
        yield


def _constant_weights(call: AttentionCall) -> AttentionCall:
    return call.edited(weights=call.weights.detach())


def _halved_products(call: AttentionCall) -> AttentionCall:
    if call.query is None or call.key is None or call.others is not None:
        raise UserError(
            'method="attn-lrp" shares relevance between queries and keys, but the scores of '
            f"{type(call.module).__name__} are not made of their products alone (of position too, or of several "
            "projections). Use "
            'method="gradient-x-input", "cp-lrp" or "chefer".'
        )
    return call.edited(
        query=_gradient(call.query, 0.25), key=_gradient(call.key, 0.25), value=_gradient(call.value, 0.5)
    )


_ATTENTION: dict[str, Callable[[AttentionCall], AttentionCall]] = {
    "cp-lrp": _constant_weights,
    "attn-lrp": _halved_products,
}


class _Rules(TorchFunctionMode):
    """Activations and gated products, whether modules or functions."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self._variant, self._inside = variant, 0
        self._activated: Tensor | None = None  # output of the latest activation

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._inside += 1

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        self._inside -= 1
        if not self._inside:
            self._activated = _quotient(args[0], output)
            return self._activated
        return output

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:
            return func(*args, **(kwargs or {}))
        if func in PRODUCTS and any(arg is self._activated for arg in args) and self._activated is not None:
            return self._gated(func, args)
        result = func(*args, **(kwargs or {}))
        if func in CURVES:
            self._activated = result = _quotient(args[0], result)
        return result

    def _gated(self, func: Any, args: tuple[Any, ...]) -> Tensor:
        if not all(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            return func(*args)
        if self._variant == "attn-lrp":
            return _gradient(func(*args), 0.5)
        return func(*(arg.detach() if arg is self._activated else arg for arg in args))


def _constant_deviation(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    norm = Norm.of(module, args[0], output)
    return output if norm is None else _with_gradient_of(norm(args[0], constant_scale=True), output)


def _quotient(states: Tensor, output: Tensor) -> Tensor:
    """f(x) as a constant times x."""
    away = states.detach() + torch.where(states.detach() < 0, -_TINY, _TINY)
    return _with_gradient_of(states * (output.detach() / away), output)


def _with_gradient_of(surrogate: Tensor, output: Tensor) -> Tensor:
    """The value of `output`, exactly, with the gradient of `surrogate`."""
    return output.detach() + (surrogate - surrogate.detach())


def _gradient(tensor: Tensor, factor: float) -> Tensor:
    """The same number, with a scaled gradient."""
    return tensor.detach() + (tensor - tensor.detach()) * factor
