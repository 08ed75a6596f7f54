"""Relevance from one backward pass for all predictions of a sentence, with one copy of it per prediction."""

# N seed, T token, L layer, H head, D width

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import Model, tap

from ._request import Place, Request, SentenceRelevance, joined, without_cache

Output = Callable[[Any], Tensor]
"""A user-defined number to explain, computed from the model's output: (rows,) or (rows, token)."""

_COPIED_NUMBERS = 1 << 24  # states of all layers held for one backward pass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Copies:
    """A forward pass with one copy of the sentence for each seed, differentiable from the embeddings on."""

    model: Model
    embeddings: dict[str, Tensor]  # by stack: state 0, a leaf
    explained: Tensor  # (N,) one number of each copy


def gradient_relevance(
    request: Request, output: Output | None, rules: Callable[[], AbstractContextManager] = nullcontext
) -> SentenceRelevance:
    r"""Gradient times input at the output projection's input: the derivative with respect to a gate on the head.

    $$ R_h = \sum_{t, d} c^h_{td} \frac{\partial y}{\partial c^h_{td}} = \frac{\partial y}{\partial \xi_h} $$

    and at state 0 for tokens. `rules` changes the backward pass.
    """
    parts = []
    for seeds in seed_chunks(request):
        gates = _gates(request.model, len(seeds))
        with torch.enable_grad(), rules(), tap(request.model, gates=gates):
            copies = run_copies(request, seeds, output)
        flat = [gate for layers in gates.values() for gate in layers]
        found = torch.autograd.grad(copies.explained.sum(), [*flat, *copies.embeddings.values()], allow_unused=True)
        of_gates = dict(zip(_places(gates), found, strict=False))
        of_states = dict(zip(copies.embeddings, found[len(flat) :], strict=True))
        parts.append(
            SentenceRelevance(
                heads={place: _or_zero(one, flat[i]) for i, (place, one) in enumerate(of_gates.items())},
                tokens={
                    stack: (states * _or_zero(of_states[stack], states)).sum(2).detach()
                    for stack, states in copies.embeddings.items()
                },
            )
        )
    return joined(parts)


def run_copies(request: Request, seeds: Tensor, output: Output | None) -> Copies:
    """Run the copies for some of the request's seeds; gradients must be enabled.

    Raises:
        UserError: The model has no head and there is no `output`, or `output` has a wrong shape.
    """
    model, num = request.model, len(seeds)
    inputs = {name: _copied(value, num) for name, value in request.predictions.inputs.items()}
    with _leaves_at_state_0(model) as embeddings:
        found = model.module(**inputs, **without_cache(model))
    positions = request.predictions.positions[seeds].to(model.device)
    copy = torch.arange(num, device=model.device)
    if output is not None:
        return Copies(model=model, embeddings=embeddings, explained=_own(output(found), copy, positions))
    logits_NTV = request.logits(found)
    at_NV = logits_NTV[copy, positions]
    targets = request.targets(at_NV.detach())
    return Copies(model=model, embeddings=embeddings, explained=at_NV[copy, targets])


def seed_chunks(request: Request, numbers_per_seed: int | None = None) -> Iterator[Tensor]:
    """Indices of the seeds for each backward pass, as many as fit."""
    stacks = request.model.anatomy.stacks
    tokens = max(value.shape[1] for value in request.predictions.inputs.values() if _is_sequence(value))
    default = sum(16 * len(stack.layers) * stack.width * tokens for stack in stacks)
    step = max(1, _COPIED_NUMBERS // (numbers_per_seed or default))
    yield from torch.arange(len(request.predictions.positions)).split(step)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1


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
    """The input of each stack's first block becomes a leaf of the gradient."""
    embeddings: dict[str, Tensor] = {}

    def before(name: str) -> Callable[..., Any]:
        def hook(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name in embeddings:  # a shared block runs once per layer
                return None
            embeddings[name] = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
            if args:
                return (embeddings[name], *args[1:]), kwargs
            return args, kwargs | {"hidden_states": embeddings[name]}

        return hook

    with ExitStack() as stack:
        for one in model.anatomy.stacks:
            block = model.module.get_submodule(one.layers[0].block)
            stack.callback(block.register_forward_pre_hook(before(one.name), with_kwargs=True).remove)
        yield embeddings


def _gates(model: Model, num: int) -> dict[tuple[str, str], list[Tensor]]:
    """Ones for each head of each copy."""
    dtype = next(model.module.parameters()).dtype
    gates: dict[tuple[str, str], list[Tensor]] = {}
    for one in model.anatomy.attentions():
        ones = torch.ones(num, one.num_heads, device=model.device, dtype=dtype, requires_grad=True)
        gates.setdefault((one.stack, one.kind), []).append(ones)
    return gates


def _places(gates: dict[tuple[str, str], list[Tensor]]) -> list[Place]:
    return [(stack, kind, layer) for (stack, kind), layers in gates.items() for layer in range(len(layers))]


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient
