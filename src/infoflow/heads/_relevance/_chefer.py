"""Relevance from attention and its gradient (Chefer and others), with one backward pass for all predictions."""

# N seed, T query token, S key token, H head

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import Model, Stack, open_gates, reading, states_read, tap, without_cache

from ._request import Place, Request, SentenceRelevance, joined

Output = Callable[[Any], Tensor]
"""A user-defined number to explain, computed from the model's output: (rows,) or (rows, token)."""

_COPIED_NUMBERS = 1 << 24  # states of all layers held for one backward pass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Copies:
    """A forward pass with one copy of the sentence per seed (explained prediction), differentiable from state 0 up."""

    model: Model
    embeddings: dict[str, Tensor]  # by stack: state 0, a leaf
    explained: Tensor  # (N,) one number for each copy


def gradient_relevance(
    request: Request, output: Output | None, rules: Callable[[], AbstractContextManager] = nullcontext
) -> SentenceRelevance:
    r"""Gradient times input at the input of the output projection: the derivative with respect to a gate on the head.

    $$ R_h = \sum_{t, d} c^h_{td} \frac{\partial y}{\partial c^h_{td}} = \frac{\partial y}{\partial \xi_h} $$

    The relevance of tokens is computed in the same way at state 0. `rules` changes the backward pass.
    """
    parts = []
    for seeds in seed_chunks(request):
        gates = open_gates(request.model, len(seeds), next(request.model.module.parameters()).dtype)
        with torch.enable_grad(), rules(), tap(request.model, gates=gates):
            copies = run_copies(request, seeds, output)
        places = [(one.stack, one.kind, one.layer) for one in request.model.anatomy.attentions()]
        flat = [gates[stack, kind][layer] for stack, kind, layer in places]
        found = torch.autograd.grad(
            copies.explained.sum(), [*flat, *copies.embeddings.values()], materialize_grads=True
        )
        of_states = dict(zip(copies.embeddings, found[len(flat) :], strict=True))
        parts.append(
            SentenceRelevance(
                heads=dict(zip(places, found[: len(flat)], strict=True)),
                tokens={
                    stack: (states * of_states[stack]).sum(2).detach() for stack, states in copies.embeddings.items()
                },
            )
        )
    return joined(parts)


def run_copies(request: Request, seeds: Tensor, output: Output | None) -> Copies:
    """Run the copies for some of the request's seeds; gradients must be enabled."""
    model, num = request.model, len(seeds)
    inputs = {name: _copied(value, num) for name, value in request.predictions.inputs.items()}
    with _leaves_at_state_0(model) as embeddings:
        found = model.module(**inputs, **without_cache(model.module))
    positions = request.predictions.positions[seeds].to(model.device)
    copy = torch.arange(num, device=model.device)
    if output is not None:
        return Copies(model=model, embeddings=embeddings, explained=_own(output(found), copy, positions))
    logits_NTV = request.logits(found)
    at_NV = logits_NTV[copy, positions]
    targets = request.targets(at_NV.detach())
    return Copies(model=model, embeddings=embeddings, explained=at_NV[copy, targets])


def seed_chunks(request: Request, numbers_per_seed: int | None = None) -> Iterator[Tensor]:
    """Indices of the seeds for each backward pass, as many as fit into memory."""
    stacks = request.model.anatomy.stacks
    default = sum(16 * len(stack.layers) * stack.width for stack in stacks) * _longest(request)
    step = max(1, _COPIED_NUMBERS // (numbers_per_seed or default))
    yield from torch.arange(len(request.predictions.positions)).split(step)


def _longest(request: Request) -> int:
    """The largest number of tokens that a stack reads."""
    inputs = request.predictions.inputs.values()
    return max(value.shape[1] for value in inputs if isinstance(value, Tensor) and value.dim() > 1)


def _copied(value: Any, num: int) -> Any:
    if isinstance(value, Tensor) and value.dim() and value.shape[0] == 1:
        return value.expand(num, *value.shape[1:])
    return value


def _own(values: Tensor, copy: Tensor, positions: Tensor) -> Tensor:
    if values.dim() == 1 and len(values) == len(copy):
        return values
    if values.dim() == 2 and len(values) == len(copy):
        return values[copy, positions]
    raise UserError(
        f"output must give one number per row, or one per row and token: ({len(copy)},) or ({len(copy)}, tokens). "
        f"Got shape {tuple(values.shape)}."
    )


@contextmanager
def _leaves_at_state_0(model: Model) -> Iterator[dict[str, Tensor]]:
    """Makes the input of each stack's first block a leaf of the gradient."""
    embeddings: dict[str, Tensor] = {}

    def before(own: Stack) -> Callable[..., Any]:
        def hook(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if own.name in embeddings:  # a shared block runs once per layer
                return None
            embeddings[own.name] = own.joined(states_read(args, kwargs)).detach().requires_grad_()
            return reading(args, kwargs, own.parted(embeddings[own.name]))

        return hook

    with ExitStack() as stack:
        for one in model.anatomy.stacks:
            block = model.module.get_submodule(one.layers[0].block)
            stack.callback(block.register_forward_pre_hook(before(one), with_kwargs=True).remove)
        yield embeddings


def chefer_relevance(request: Request, output: Output | None) -> SentenceRelevance:
    r"""The positive part of attention times gradient, propagated through the layers.

    $$ \bar A = \frac{1}{H} \sum_h (\nabla A_h \odot A_h)^+, \qquad R \leftarrow R + \bar A R $$

    from R = I. In cross-attention $R^{ts} \leftarrow R^{ts} + N(R^{tt})^\top \bar A \, N(R^{ss})$, where N divides the
    rows of R − I by their sums and adds I again (rows equal to I stay unchanged). A token's relevance is its entry in
    the row of the prediction; a head's is the sum of its $(\nabla A_h \odot A_h)^+$.

    Source: [@chefer2021b].
    """
    parts = []
    for maps, positions in _weighted(request, output):
        positive = {place: (weights * gradient).clamp(min=0) for place, (weights, gradient) in maps.items()}
        parts.append(
            SentenceRelevance(
                heads={place: one.sum((2, 3)) for place, one in positive.items()},
                tokens=_tokens({place: _over_heads(one) for place, one in positive.items()}, positions),
            )
        )
    return joined(parts)


Maps = dict[Place, tuple[Tensor, Tensor]]
"""Weights of every attention, and the gradient of the explained number with respect to them: (N, H, T, S) each."""


def _weighted(request: Request, output: Output | None) -> Iterator[tuple[Maps, Tensor]]:
    """Attention and gradient for as many predictions as fit into memory, and the positions of these predictions."""
    attentions = list(request.model.anatomy.attentions())
    numbers = 8 * sum(one.num_heads for one in attentions) * _longest(request) ** 2
    for seeds in seed_chunks(request, numbers):
        with torch.enable_grad(), tap(request.model, attention=True) as seen:
            copies = run_copies(request, seeds, output)
        weights = [seen.attention[one.stack, one.kind][one.layer] for one in attentions]
        gradients = torch.autograd.grad(copies.explained.sum(), weights, materialize_grads=True)
        yield (
            {
                (one.stack, one.kind, one.layer): (a.detach(), g)
                for one, a, g in zip(attentions, weights, gradients, strict=True)
            },
            request.predictions.positions[seeds],
        )


def _over_heads(maps: Float[Tensor, "seed head query key"]) -> Float[Tensor, "seed query key"]:
    """The mean over heads; 0 if every head was pruned."""
    return maps.sum(1) / max(1, maps.shape[1])


def _tokens(maps: dict[Place, Float[Tensor, "seed query key"]], positions: Tensor) -> dict[str, Tensor]:
    """The relevance of tokens: the row of each prediction, after all layers."""
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
    """The attention modules in execution order: in each layer, self-attention comes before cross-attention."""
    return sorted(maps.items(), key=lambda item: (item[0][2], item[0][1] != "self"))


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[1]).to(like).expand_as(like)


def _row_normalised(relevance: Tensor) -> Tensor:
    """Rows of R − I divided by their sums, plus I; rows equal to I are unchanged."""
    rest = relevance - _identity(relevance)
    total = rest.sum(2, keepdim=True)
    return torch.where(total == 0, 0.0, rest / torch.where(total == 0, 1.0, total)) + _identity(relevance)
