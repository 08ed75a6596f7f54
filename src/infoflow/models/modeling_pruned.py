"""A transformers model without some of its attention heads, as listed under `pruned` in its config.json.

A copy of this file is in every folder of a pruned model. It needs only torch and transformers:
`AutoModel....from_pretrained(folder, trust_remote_code=True)`.
"""

from typing import Any

import torch
from torch import Tensor, nn


def pruned_class(base: Any) -> Any:
    """A subclass of `base`, a class of transformers, that removes heads before it reads its weights."""

    class Pruned(base):
        def __init__(self, config: Any, *args: Any, **options: Any) -> None:
            super().__init__(config, *args, **options)
            if getattr(config, "pruned", None):  # transformers registers this class for all models of the family
                shrink(self, config.pruned)

    Pruned.__name__ = Pruned.__qualname__ = base.__name__  # by which transformers finds renamed weights
    return Pruned


def shrink(model: nn.Module, pruned: dict[str, Any]) -> None:
    """Give parameters and attentions their smaller sizes, in place; the weights are read afterwards.

    Args:
        model: The model as its configuration describes it.
        pruned: `shapes` of parameters by name, `attributes` of modules by path, and `heads` left in T5's attentions.
    """
    for name, shape in pruned["shapes"].items():
        path, _, attribute = name.rpartition(".")
        owner: Any = model.get_submodule(path)
        resize(owner, attribute, torch.empty(shape, dtype=owner.weight.dtype, device=owner.weight.device))
    for path, attributes in pruned["attributes"].items():
        for name, value in attributes.items():
            setattr(model.get_submodule(path), name, value)
    for path, (heads, total) in pruned["heads"].items():
        keep_full_bias(model.get_submodule(path), heads, total)


def resize(owner: Any, attribute: str, value: Tensor) -> None:
    """Replace a parameter of a linear layer (or Conv1D) by one of another size."""
    setattr(owner, attribute, nn.Parameter(value, requires_grad=getattr(owner, attribute).requires_grad))
    if attribute != "weight":
        return
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = value.shape
    else:  # Conv1D: (in, out)
        owner.nx, owner.nf = value.shape


class FullBias:
    """T5's relative bias, built once for all heads and passed from layer to layer.

    A smaller attention uses its heads' part and passes on the whole.
    """

    kept_bias: list[int]
    bias_heads: int

    def compute_bias(self, *args: Any, **kwargs: Any) -> Tensor:
        self._full = super().compute_bias(*args, **kwargs)  # type: ignore[misc]
        return self._full[:, self.kept_bias]

    def forward(self, *args: Any, position_bias: Tensor | None = None, **kwargs: Any) -> tuple[Any, ...]:
        own = None if position_bias is None else position_bias[:, self.kept_bias]
        output, used, *rest = super().forward(*args, position_bias=own, **kwargs)  # type: ignore[misc]
        if position_bias is None:
            first = self.has_relative_attention_bias  # type: ignore[attr-defined]
            position_bias = self._full if first else used.new_zeros(1, self.bias_heads, *used.shape[2:])
        return output, position_bias, *rest


def keep_full_bias(attention: Any, kept: list[int], num_heads: int) -> None:
    """Let an attention of T5 use the bias of its `kept` heads among `num_heads`."""
    if isinstance(attention, FullBias):  # pruned before: its own heads are already a part
        attention.kept_bias = [attention.kept_bias[head] for head in kept]
        return
    family = type(attention)
    attention.__class__ = type(family.__name__, (FullBias, family), {"__module__": family.__module__})
    attention.kept_bias, attention.bias_heads = kept, num_heads
