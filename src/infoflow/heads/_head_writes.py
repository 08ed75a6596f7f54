"""What a head writes: the size of each token's contribution, and its effect on the token's own logit."""

# B batch or sequence, H query head, T query token, S key token, P position, d head width, D model width

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.models import Attention, Model, Readout

_ROWS = 256  # states per readout: bounds rows times vocabulary


def output_weight(model: Model, attention: Attention) -> Float[Tensor, "head width model_width"]:
    """The part of the output projection that each head owns, W_O^h, so that a head's output is `context @ W_O^h`."""
    weight = model.module.get_submodule(attention.output_projection).weight.detach()
    rows = weight if attention.transposed else weight.T
    return rows.unflatten(0, (attention.num_heads, attention.head_dim))


def value_norms(
    value_BHSd: Float[Tensor, "batch head key width"], output_HdD: Float[Tensor, "head width model_width"]
) -> Float[Tensor, "batch head key"]:
    r"""Length of the vector that a head would write if it attended to one key alone.

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
    r"""The contribution of each key to each query, $\lVert A_{ij} f_h(x_j) \rVert$: weights times `value_norms`.

    A key with most of the attention may contribute little if its value is short: [CLS] and [SEP] often do.

    Source: [@kobayashi2020].
    """
    return weights_BHTS * value_norms(value_BHSd, output_HdD)[:, :, None]


def logit_directions(
    readout: Readout, states: Float[Tensor, "row width"], tokens: Int[Tensor, " row"]
) -> Float[Tensor, "row width"]:
    r"""Gradient of a token's logit, minus the vocabulary's mean, with respect to the last block's output.

    $$ g = \nabla_s \Big( \ell_x(s) - \frac{1}{|V|} \sum_v \ell_v(s) \Big) $$

    So $g \cdot u$ is the effect of a vector u, added there, on the logit through the linearised final norm and
    unembedding (and any other part of the model's head).
    """
    parts = []
    for rows, wanted in zip(states.split(_ROWS), tokens.split(_ROWS), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            given = rows.detach().clone().requires_grad_()
            logits = readout(given)
            score = logits.gather(1, wanted.clone().unsqueeze(1)).squeeze(1) - logits.mean(1)
            parts.append(torch.autograd.grad(score.sum(), given)[0])
    return torch.cat(parts)


def copying_scores(
    values: Float[Tensor, "sequence head place width"],
    output: Float[Tensor, "head width model_width"],
    directions: Float[Tensor, "sequence place model_width"],
) -> Float[Tensor, "sequence head place"]:
    r"""The effect of attending to each token on its own logit: $g_j \cdot v_j W_O^h$, in logits.

    The direct path only: the effect of later blocks is left out, and the bias of W_O belongs to no head.

    Source: [@olsson2022], who use the sign and size of this effect as the copying score.
    """
    readers = torch.einsum("bpD,hdD->bhpd", directions, output.to(directions.dtype))
    return (values.to(directions.dtype) * readers).sum(3)
