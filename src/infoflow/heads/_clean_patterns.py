"""Attention weights frozen at what the unablated model computes."""

from typing import Any

from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import AttentionCall, Model, Site

from ._forward_inputs import bound_inputs, has_cache


class CleanPatterns:
    """Runs every batch once without ablation and then fixes all attention weights to what they were."""

    def __init__(self, model: Model) -> None:
        self._model, self.recording = model, False
        self._weights: dict[Site, Tensor] = {}

    def __enter__(self) -> "CleanPatterns":
        # Before the tap's own hook, so that the tap counts the outer pass's layers from 0 again.
        self._handle = self._model.module.register_forward_pre_hook(self._before, with_kwargs=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.recording:
            return
        if has_cache(bound_inputs(module, args, kwargs)):
            raise UserError("preserve_patterns needs whole sentences: it cannot follow generation with a cache.")
        self.recording = True
        try:
            self._weights.clear()
            module(*args, **kwargs)
        finally:
            self.recording = False

    def __call__(self, call: AttentionCall) -> AttentionCall | None:
        if self.recording:
            self._weights[call.site] = call.weights
            return None
        if call.site not in self._weights:
            raise UserError("preserve_patterns needs a forward pass of the whole model: call model.module(...).")
        return call.edited(weights=self._weights[call.site])
