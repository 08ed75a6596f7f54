"""Attention weighted by what it moves: the norm of each token's contribution to a head's output."""

# B batch, H query head, T query token, S key token, d head width, D model width

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.models import Attention, Model


def output_weight(model: Model, attention: Attention) -> Float[Tensor, "head width model_width"]:
    """The part of the output projection that each head owns, W_O^h, so that a head's output is `context @ W_O^h`."""
    weight = model.module.get_submodule(attention.output_projection).weight.detach()
    rows = weight if attention.transposed else weight.T
    return rows.unflatten(0, (attention.num_heads, attention.head_dim))


def value_norms(
    value_BHSd: Float[Tensor, "batch head key width"], output_HdD: Float[Tensor, "head width model_width"]
) -> Float[Tensor, "batch head key"]:
    r"""Length of the vector that a head would write if it looked at one key alone.

    $$ \lVert f_h(x_j) \rVert, \qquad f_h(x) = (x W_V^h + b_V^h)\, W_O^h $$

    Args:
        value_BHSd: Values x W_V + b_V of every head, grouped heads repeated, as an `AttentionCall` shows them.
        output_HdD: `output_weight`.

    The bias of the output projection belongs to no head and is left out.

    Source: [@kobayashi2020].

    >>> value_norms(torch.ones(1, 1, 2, 2), torch.eye(2)[None])
    tensor([[[1.4142, 1.4142]]])
    """
    dtype = output_HdD.dtype if output_HdD.dtype.itemsize >= 4 else torch.float32
    values, output = value_BHSd.to(dtype), output_HdD.to(dtype)
    norms = values.new_empty(values.shape[:3])
    for head in range(len(output)):  # all vectors at once would be heads times the model's width
        norms[:, head] = (values[:, head] @ output[head]).norm(dim=-1)
    return norms


def value_weighted_norms(
    weights_BHTS: Float[Tensor, "batch head query key"],
    value_BHSd: Float[Tensor, "batch head key width"],
    output_HdD: Float[Tensor, "head width model_width"],
) -> Float[Tensor, "batch head query key"]:
    r"""How much of each key a head writes at each query, $\lVert A_{ij} f_h(x_j) \rVert$: weights times `value_norms`.

    A key may take most of the attention and yet move little, where its value is short: [CLS] and [SEP] often are such.

    Source: [@kobayashi2020].
    """
    return weights_BHTS * value_norms(value_BHSd, output_HdD)[:, :, None]
