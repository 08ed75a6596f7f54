"""Where a model's feed-forward activations can be read, in any family."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import Model, evaluating, feed_forward_outputs, module_outputs, tiny_inputs

_EXPERTS = (
    "A router decides which tokens an expert sees, so its neurons cannot be compared with those of other models: "
    "expert_routing measures the router"
)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The feed-forward part of one layer, as module names."""

    stack: str
    layer: int
    gate: str
    """A neuron is active where this module's output is above 0: the nonlinearity, or the projection before it."""
    out: str
    """Writes the activations to the residual stream."""
    neurons: int


Show = Callable[[FeedForward, Bool[Tensor, "place neuron"], Float[Tensor, "place neuron"]], None]
"""Is called with a layer, a mask of its active neurons at each position, and the activations that it writes."""


Calls = list[tuple[str, nn.Module, Tensor]]
"""Name, module and output of each module of the blocks, in the order in which they ran on a few tokens."""
Inputs = dict[str, list[tuple[int, Tensor]]]
"""The inputs of each output projection, with the number of module calls before it."""


def feed_forward_parts(model: Model) -> list[FeedForward]:
    """The feed-forward part of every layer, found by running the model on a few tokens.

    Raises:
        UserError: A layer has no such part, several (a mixture of experts), or one whose gate is not a module.
    """
    try:
        names = {stack.name: feed_forward_outputs(model, stack.name) for stack in model.anatomy.stacks}
    except UserError as error:
        raise UserError(f"{error} {_EXPERTS}." if "experts" in str(error) else str(error)) from None
    for out in {name for of_stack in names.values() for name in of_stack}:
        if not _is_projection(model.module.get_submodule(out)):
            raise UserError(f"{model.name} holds all experts of a mixture in one module ({out}). {_EXPERTS}.")
    calls, inputs = _tried(model, {name for of_stack in names.values() for name in of_stack})
    return [
        _part(model, calls, inputs, FeedForward(stack.name, layer.index, "", names[stack.name][layer.index], 0))
        for stack in model.anatomy.stacks
        for layer in stack.layers
    ]


def _is_projection(module: nn.Module) -> bool:
    weight = getattr(module, "weight", getattr(module, "qweight", None))
    return weight is not None and (weight.ndim == 2 or not weight.is_floating_point())


def _tried(model: Model, outs: set[str]) -> tuple[Calls, Inputs]:
    calls, inputs = Calls(), Inputs()
    blocks = tuple({f"{layer.block}." for stack in model.anatomy.stacks for layer in stack.layers})
    with ExitStack() as hooks:
        for name, module in model.module.named_modules():
            if name in outs:

                def entered(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
                    inputs.setdefault(name, []).append((len(calls), args[0]))

                hooks.callback(module.register_forward_pre_hook(entered).remove)
            elif name.startswith(blocks) and not any(True for _ in module.children()):

                def called(module: nn.Module, args: tuple[Any, ...], output: Any, name: str = name) -> None:
                    if isinstance(output, Tensor):
                        calls.append((name, module, output))

                hooks.callback(module.register_forward_hook(called).remove)
        with evaluating(model.module):
            model.module(**tiny_inputs(model.module))
    return calls, inputs


def _part(model: Model, calls: Calls, inputs: Inputs, part: FeedForward) -> FeedForward:
    """The part with its gate and its number of neurons."""
    layers, entered = model.anatomy.stack(part.stack).layers, inputs.get(part.out, [])
    block = next(one.block for one in layers if one.index == part.layer)
    if len(entered) != sum(one.block == block for one in layers):
        raise UserError(
            f"{model.name} calls {part.out} {len(entered)} times for each text, as in a mixture of experts. {_EXPERTS}."
        )
    at, activation = entered[0]
    gate = _gate([call for call in calls[:at] if call[0].startswith(f"{block}.")], activation)
    if gate is None:
        raise UserError(
            f"The nonlinearity of layer {part.layer} of {model.name}'s {part.stack} is not a module, and its "
            "feed-forward part is gated, so its active neurons cannot be read."
        )
    return replace(part, gate=gate, neurons=activation.shape[-1])


def _gate(calls: Calls, activation: Tensor) -> str | None:
    """The last module without parameters before the output, or a module whose output has the activation's sign."""
    shape, size = activation.shape[-1:], activation.numel()
    fitting = [call for call in reversed(calls) if call[2].shape[-1:] == shape and call[2].numel() == size]
    for name, module, _ in fitting:
        if not any(True for _ in module.parameters()) and not isinstance(module, nn.Dropout | nn.Identity):
            return name
    found = (name for name, _, out in fitting if torch.equal(out.reshape(activation.shape) > 0, activation > 0))
    return next(found, None)


@contextmanager
def watched(model: Model, parts: list[FeedForward], show: Show) -> Iterator[None]:
    """Call `show` for each feed-forward part that runs inside the block."""
    latest: dict[str, tuple[FeedForward, Tensor]] = {}

    def keep(own: list[FeedForward]) -> Any:
        def edit(number: int, output: Tensor) -> None:
            latest[own[number].out] = own[number], output

        return edit

    def before(out: str) -> Any:
        def entered(module: nn.Module, args: tuple[Any, ...]) -> None:
            part, output = latest.pop(out)
            written = args[0].reshape(-1, part.neurons)
            show(part, output.reshape(written.shape) > 0, written)

        return entered

    with ExitStack() as stack:
        for name in dict.fromkeys(part.stack for part in parts):
            own = [part for part in parts if part.stack == name]
            stack.enter_context(module_outputs(model, [part.gate for part in own], keep(own)))
        for out in dict.fromkeys(part.out for part in parts):
            module = model.module.get_submodule(out)
            stack.callback(module.register_forward_pre_hook(before(out)).remove)
        yield
