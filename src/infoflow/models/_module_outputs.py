"""Read or replace the output of one module in each block, without changing the model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ._model import Model

OutputEdit = Callable[[int, Tensor], Tensor | None]
"""Receives a layer and its module's output; may return another output."""


@contextmanager
def module_outputs(model: Model, modules: Sequence[str], edit: OutputEdit) -> Iterator[None]:
    """Show `edit` the output of each layer's module inside the `with` block.

    Args:
        model: A loaded model.
        modules: Name of a module for each layer, as from `feed_forward_outputs`; layers that share one (ALBERT) have
            the same name and must then all run.
        edit: Called at each output.

    >>> from infoflow.models import feed_forward_outputs
    >>> names, sizes = feed_forward_outputs(model, "encoder"), {}
    >>> with torch.no_grad(), module_outputs(model, names, lambda layer, output: sizes.update({layer: output.shape})):
    ...     logits = model.module(torch.tensor([[5, 6, 7]])).logits
    >>> sizes[2]
    torch.Size([1, 3, 16])
    """
    layers: dict[str, list[int]] = {}
    for layer, name in enumerate(modules):
        layers.setdefault(name, []).append(layer)
    calls: dict[str, int] = {}

    def restart(module: nn.Module, args: Any) -> None:
        calls.clear()

    def shown(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor | None]:
        def after(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            call = calls.get(name, 0)
            calls[name] = call + 1
            return edit(layers[name][call % len(layers[name])], output)

        return after

    handles = [model.module.register_forward_pre_hook(restart)]
    handles += [model.module.get_submodule(name).register_forward_hook(shown(name)) for name in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
