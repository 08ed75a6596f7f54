"""Whether a model's tokens see later tokens."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.models import evaluating

_CAUSAL: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reads_left_only(module: PreTrainedModel) -> bool:
    """Whether the head's output at the first token is independent of later tokens, determined by a test."""
    if module not in _CAUSAL:
        with evaluating(module), torch.autocast(next(module.parameters()).device.type, enabled=False):
            _CAUSAL[module] = _first_is_blind(module)
    return _CAUSAL[module]


def _first_is_blind(module: PreTrainedModel) -> bool:
    """Tests the gradient of all outputs at the first token with respect to the other embeddings.

    Behind a causal mask it is exactly 0. In an encoder with little attention to later tokens it is small but not 0,
    while the outputs for two texts may differ by less than rounding.
    """
    ids = torch.tensor([[5, 6, 7, 8]], device=next(module.parameters()).device)
    embedded: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1].clone()  # the model may modify its input in place

    table = module.get_input_embeddings()
    tied = [one for one in module.modules() if isinstance(one, nn.Embedding) and one.weight is table.weight]
    hooks = [one.register_forward_hook(keep) for one in tied or [table]]
    try:
        with torch.enable_grad():
            said = module(input_ids=ids % int(module.config.get_text_config().vocab_size))[0][:, 0].float()
            gradients = torch.autograd.grad(said.square().sum(), embedded, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return all(one is None or not one[:, 1:].any() for one in gradients)
