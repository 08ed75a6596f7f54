"""Relevance from attention and its gradient (Chefer and others)."""

# N seed, T query token, S key token, H head

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.models import tap

from ._gradients import Output, run_copies, seed_chunks
from ._request import Request
from ._result import Place, SentenceRelevance, joined


def chefer_relevance(request: Request, output: Output | None) -> SentenceRelevance:
    r"""The positive part of attention times gradient, followed through the layers.

    $$ \bar A = \frac{1}{H} \sum_h (\nabla A_h \odot A_h)^+, \qquad R \leftarrow R + \bar A R $$

    from R = I. In cross-attention $R^{ts} \leftarrow R^{ts} + N(R^{tt})^\top \bar A \, N(R^{ss})$, where N divides the
    rows of R − I by their sums and adds I again (rows without anything stay I). A token's relevance is its entry in the
    row of the prediction; a head's is the sum of its $(\nabla A_h \odot A_h)^+$.

    Source: [@chefer2021b].
    """
    parts = []
    attentions = list(request.model.anatomy.attentions())
    lengths = [v.shape[1] for v in request.predictions.inputs.values() if isinstance(v, Tensor) and v.dim() > 1]
    numbers = 8 * sum(one.num_heads for one in attentions) * max(lengths) ** 2
    for seeds in seed_chunks(request, numbers):
        with torch.enable_grad(), tap(request.model, attention=True) as seen:
            copies = run_copies(request, seeds, output)
        weights = [seen.attention[one.stack, one.kind][one.layer] for one in attentions]
        gradients = torch.autograd.grad(copies.explained.sum(), weights, allow_unused=True)
        positive: dict[Place, Tensor] = {
            (one.stack, one.kind, one.layer): torch.zeros_like(a) if g is None else (a * g).clamp(min=0).detach()
            for one, a, g in zip(attentions, weights, gradients, strict=True)
        }
        positions = request.predictions.positions[seeds]
        parts.append(
            SentenceRelevance(
                heads={place: maps.sum((2, 3)) for place, maps in positive.items()},
                tokens=_tokens({place: maps.mean(1) for place, maps in positive.items()}, positions),
            )
        )
    return joined(parts)


def _tokens(maps: dict[Place, Float[Tensor, "seed query key"]], positions: Tensor) -> dict[str, Tensor]:
    """The row of each prediction, after all layers."""
    stacks = list(dict.fromkeys(stack for stack, _, _ in maps))
    own = {stack: _identity(maps[stack, "self", 0]) for stack in stacks}
    copy = torch.arange(len(positions))
    for (stack, kind, _), map_NTS in _in_order(maps):
        if kind == "self" and stack == stacks[0]:
            own[stack] = own[stack] + map_NTS @ own[stack]
    last = stacks[-1]
    if len(stacks) == 1:
        return {last: own[last][copy, positions]}
    source = own[stacks[0]]
    across = source.new_zeros(len(positions), own[last].shape[1], source.shape[1])
    for (stack, kind, _), map_NTS in _in_order(maps):
        if stack == last and kind == "self":
            own[last], across = own[last] + map_NTS @ own[last], across + map_NTS @ across
        elif stack == last:
            across = across + _row_normalised(own[last]).mT @ map_NTS @ _row_normalised(source)
    return {stacks[0]: across[copy, positions], last: own[last][copy, positions]}


def _in_order(maps: dict[Place, Tensor]) -> list[tuple[Place, Tensor]]:
    """As the forward pass runs them: in each layer self-attention comes before cross-attention."""
    return sorted(maps.items(), key=lambda item: (item[0][2], item[0][1] != "self"))


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[1]).to(like).expand_as(like)


def _row_normalised(relevance: Tensor) -> Tensor:
    """Rows of R − I divided by their sums, plus I; rows of I stay what they are."""
    rest = relevance - _identity(relevance)
    total = rest.sum(2, keepdim=True)
    return torch.where(total == 0, 0.0, rest / torch.where(total == 0, 1.0, total)) + _identity(relevance)
