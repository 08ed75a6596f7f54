"""Whether a model sees what follows a token."""

from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel

from infoflow.models import evaluating

_CAUSAL: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reads_left_only(module: PreTrainedModel) -> bool:
    """Whether what a model's head says of the first token is the same whatever follows, found by trying, in float32: in
    half of the digits it may be of a model that hardly looks at what follows."""
    if module not in _CAUSAL:
        with evaluating(module), torch.autocast(next(module.parameters()).device.type, enabled=False):
            _CAUSAL[module] = _first_is_blind(module)
    return _CAUSAL[module]


def _first_is_blind(module: PreTrainedModel) -> bool:
    device = next(module.parameters()).device
    ids = torch.tensor([[5, 6, 7, 8], [5, 9, 10, 11]], device=device) % int(module.config.get_text_config().vocab_size)
    first, other = module(input_ids=ids)[0][:, 0].float()
    return bool((first - other).abs().max() <= 1e-6 * first.abs().max())
