"""The arguments of the forward pass that is running."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import HeadCall, Model

from ._replacement import real_tokens


class InputWatch:
    """The keywords of the forward pass that is running."""

    def __init__(self, model: Model) -> None:
        self._model, self._inputs, self._handles = model, None, []

    def __enter__(self) -> "InputWatch":
        for module in dict.fromkeys((self._model.module, self._model.module.base_model)):
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
        self._handles.append(self._model.module.register_forward_hook(self._after, always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._inputs is None or module is self._model.module:
            self._inputs = bound_inputs(module, args, kwargs)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inputs = None

    def real(self, call: HeadCall) -> Tensor:
        """Which tokens of the running batch are no padding, for the call's stack."""
        inputs = self._inputs
        if inputs is None or has_cache(inputs):
            raise UserError(
                "A batch can be its own reference in a forward pass of the whole model without a key-value cache only. "
                "While generating, give ablate(..., reference=...): a batch or a corpus."
            )
        real = real_tokens(self._model, inputs, call.stack)
        assert real.shape == call.heads.shape[:2], (real.shape, call.heads.shape)
        return real.to(call.heads.device)


def bound_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a forward pass by name, None left out."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    named = {name: value for name, value in bound.items() if name not in ("kwargs", "args")}
    return {name: value for name, value in (named | dict(bound.get("kwargs", {}))).items() if value is not None}


def has_cache(inputs: Mapping[str, Any]) -> bool:
    return inputs.get("past_key_values") is not None
