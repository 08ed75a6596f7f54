"""Modules that are one function: linear maps, norms, activations."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.activations import ACT2CLS
from transformers.pytorch_utils import Conv1D

from ._nodes import LinearNode, LostNode, NormNode, PassNode, Tape, Value, close, rows

ACTIVATIONS = tuple({cls[0] if isinstance(cls, tuple) else cls for cls in ACT2CLS.values()} | {nn.GELU})
CURVES = (nn.functional.gelu, nn.functional.relu, nn.functional.silu, torch.tanh, torch.relu, Tensor.tanh)
PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
_UNCHANGED = (nn.Dropout, nn.Identity)
Record = Callable[[Tape, nn.Module, Tensor, Tensor, Value], None]


def leaf(module: nn.Module) -> Record | None:
    """How to record a module that is one function; None for any other."""
    if isinstance(module, nn.Linear | Conv1D):
        return _record_linear
    if is_norm(module):
        return _record_norm
    return _record_pass if isinstance(module, ACTIVATIONS + _UNCHANGED) else None


def is_norm(module: nn.Module) -> bool:
    """LayerNorm, or RMSNorm, which every family defines itself."""
    name = type(module).__name__
    return isinstance(module, nn.LayerNorm) or "RMSNorm" in name or name == "T5LayerNorm"


def _record_linear(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    weight, bias = module.get_parameter("weight").detach(), getattr(module, "bias", None)
    node = LinearNode(
        inputs=(value,),
        output=tape.new(output),
        states=rows(states),
        weight=weight.T if isinstance(module, Conv1D) else weight,
        bias=None if bias is None else bias.detach(),
    )
    tape.nodes.append(node)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Norm:
    """LayerNorm (centred) or RMSNorm: (x − mean) / sqrt(mean square + ε) · gain + bias."""

    gain: Float[Tensor, " width"]
    bias: Float[Tensor, " width"] | None
    epsilon: float
    centred: bool

    @classmethod
    def of(cls, module: nn.Module, states: Float[Tensor, "*rows width"], output: Tensor) -> "Norm | None":
        """The norm applied to `states`; None if its output differs."""
        centred = isinstance(module, nn.LayerNorm)
        names = [name for name in ("eps", "variance_epsilon") if hasattr(module, name)]
        weight, bias = (_detached(getattr(module, name, None)) for name in ("weight", "bias"))
        gains = [states.new_ones(states.shape[-1])] if weight is None else [weight, 1 + weight]  # Gemma: 1 + weight
        for gain in gains:
            norm = cls(
                gain=gain, bias=bias, epsilon=float(getattr(module, names[0])) if names else 0.0, centred=centred
            )
            if close(norm(states.detach()), output.detach()):
                return norm
        return None

    def __call__(self, states: Tensor, constant_scale: bool = False) -> Tensor:
        """The norm; with `constant_scale` the deviation, but not the mean, is a constant in the gradient."""
        moved = states - states.mean(-1, keepdim=True) if self.centred else states
        scale = (moved.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        output = moved * (scale.detach() if constant_scale else scale) * self.gain
        return output if self.bias is None else output + self.bias


def _record_norm(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    x, name = rows(states), type(module).__name__
    norm = Norm.of(module, x, rows(output))
    if norm is None:
        tape.nodes.append(LostNode(inputs=(value,), output=tape.new(output), reason=f"the norm {name}"))
        return
    tape.nodes.append(
        NormNode(
            inputs=(value,),
            output=tape.new(output),
            states=x,
            gain=norm.gain,
            bias=norm.bias,
            epsilon=norm.epsilon,
            centred=norm.centred,
        )
    )


def _record_pass(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    if output is not states:
        tape.nodes.append(PassNode(inputs=(value,), output=tape.new(output)))


def _detached(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.detach()
