"""Whether a model sees what follows a token."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.models import evaluating

_CAUSAL: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reads_left_only(module: PreTrainedModel) -> bool:
    """Whether what a model's head says of the first token is the same whatever follows, found by trying."""
    if module not in _CAUSAL:
        with evaluating(module), torch.autocast(next(module.parameters()).device.type, enabled=False):
            _CAUSAL[module] = _first_is_blind(module)
    return _CAUSAL[module]


def _first_is_blind(module: PreTrainedModel) -> bool:
    """By the gradient of all that is said of the first token by the embeddings of the others: where a mask hides them
    it is exactly 0. In an encoder that hardly looks at what follows it is small, but not 0, where what is said of two
    texts may differ by less than rounding."""
    ids = torch.tensor([[5, 6, 7, 8]], device=next(module.parameters()).device)
    embedded: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1].clone()  # which a model may change in place

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
