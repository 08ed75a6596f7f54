"""Rollout and flow as methods of relevance."""

# B copy (1), H head, T query token, S key token

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import tap

from .._rollout import attention_flow
from ._mixing import Mixing, follow
from ._request import Request, without_cache
from ._result import SentenceRelevance


def rollout_relevance(request: Request) -> SentenceRelevance:
    r"""Attention, averaged over heads and with half of each token for its residual, multiplied through the layers.

    $$ \hat A = \tfrac12 \bar A + \tfrac12 I $$

    in self-attention; in cross-attention half comes from the memory. By construction all heads of a layer carry equally
    much, so a head's relevance is here what it carries from one token to another (j ≠ i) to where it reaches the
    prediction; heads of cross-attention all have the same.

    Source: [@abnar2020], for tokens; the relevance of heads is ours.
    """
    model, attention = request.model, _attention(request)
    mixings = {}
    for one in model.anatomy.attentions():
        weights_HTS = attention[one.stack, one.kind][one.layer][0]
        mean_TS = weights_HTS.sum(0) / max(1, one.num_heads)
        own_TT = torch.eye(weights_HTS.shape[1]).to(weights_HTS)
        half = own_TT / 2 if one.num_heads else own_TT  # where all heads were pruned away tokens go on as they are
        carried_HT = weights_HTS.sum(2)
        if one.kind == "self":
            carried_HT = carried_HT - weights_HTS.diagonal(dim1=1, dim2=2)
        mixings[one.stack, one.kind, one.layer] = Mixing(
            own=mean_TS / 2 + half if one.kind == "self" else half,
            across=mean_TS / 2 if one.kind == "cross" else None,
            heads=carried_HT.T / (2 * max(1, one.num_heads)),
        )
    return follow(model, mixings, request.predictions.positions)


def flow_relevance(request: Request) -> SentenceRelevance:
    """Tokens by `attention_flow`; heads have none.

    Raises:
        UserError: The model has an encoder and a decoder, between which the published graph has no edges.
    """
    if len(request.model.anatomy.stacks) > 1:
        raise UserError(f'method="flow" is for single stacks; {request.model.name} has two. Use method="rollout".')
    ((key, layers),) = _attention(request).items()
    mask = request.predictions.inputs.get("attention_mask")
    flow_TS = attention_flow([_mean(layer).cpu() for layer in layers], None if mask is None else mask.cpu())[0]
    return SentenceRelevance(heads={}, tokens={key[0]: flow_TS[request.predictions.positions]})


def _mean(weights: Float[Tensor, "sentence head query key"]) -> Float[Tensor, "sentence 1 query key"]:
    """Over heads, of which layers of a pruned model have unequal numbers; each token for itself where none is left."""
    if weights.shape[1]:
        return weights.mean(1, keepdim=True)
    return torch.eye(weights.shape[2]).to(weights).expand(len(weights), 1, -1, -1)


def _attention(request: Request) -> dict[tuple[str, str], list[Tensor]]:
    with torch.no_grad(), tap(request.model, attention=True) as seen:
        request.model.module(**request.predictions.inputs, **without_cache(request.model))
    return dict(seen.attention)
