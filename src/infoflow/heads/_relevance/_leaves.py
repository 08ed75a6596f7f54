"""Modules that are one function: linear maps, norms, activations."""

from collections.abc import Callable

from torch import Tensor, nn
from transformers.activations import ACT2CLS
from transformers.pytorch_utils import Conv1D

from ._nodes import LinearNode, LostNode, NormNode, PassNode, Value
from ._tape import Tape, close, rows

_ACTIVATIONS = tuple({cls[0] if isinstance(cls, tuple) else cls for cls in ACT2CLS.values()} | {nn.GELU})
_UNCHANGED = (nn.Dropout, nn.Identity)
Record = Callable[[Tape, nn.Module, Tensor, Tensor, Value], None]


def leaf(module: nn.Module) -> Record | None:
    """How to record a module that is one function; None for any other."""
    if isinstance(module, nn.Linear | Conv1D):
        return _record_linear
    if isinstance(module, nn.LayerNorm) or "RMSNorm" in type(module).__name__ or type(module).__name__ == "T5LayerNorm":
        return _record_norm
    return _record_pass if isinstance(module, _ACTIVATIONS + _UNCHANGED) else None


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


def _record_norm(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    x = rows(states)
    centred = isinstance(module, nn.LayerNorm)
    epsilon = next((float(getattr(module, name)) for name in ("eps", "variance_epsilon") if hasattr(module, name)), 0.0)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    moved = x - x.mean(1, keepdim=True) if centred else x
    unit = moved * (moved.square().mean(1, keepdim=True) + epsilon).rsqrt()
    gains = [x.new_ones(x.shape[1])] if weight is None else [weight.detach(), 1 + weight.detach()]  # Gemma: 1 + weight
    shift = 0 if bias is None else bias.detach()
    gain = next((gain for gain in gains if close(unit * gain + shift, rows(output))), None)
    name = type(module).__name__
    if gain is None or (not centred and bias is not None):
        tape.nodes.append(LostNode(inputs=(value,), output=tape.new(output), reason=f"the norm {name}"))
        return
    tape.nodes.append(
        NormNode(
            inputs=(value,),
            output=tape.new(output),
            states=x,
            gain=gain,
            bias=None if bias is None else bias.detach(),
            epsilon=epsilon,
            centred=centred,
        )
    )


def _record_pass(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    if output is not states:
        tape.nodes.append(PassNode(inputs=(value,), output=tape.new(output)))
