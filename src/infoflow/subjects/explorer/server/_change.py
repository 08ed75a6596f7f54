"""Interventions on a model while it reads one sentence: hidden tokens, ablated heads, skipped layers."""

# S key token, T query token

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, ablate, head_set
from infoflow.models import AttentionCall, Model, keys_stack, tap, without_token

Place = tuple[str, int]
"""A token of a stack, or a layer of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Tokens hidden from all attention, heads whose output is replaced, layers that pass their input on."""

    hide: tuple[Place, ...] = ()
    heads: tuple[tuple[str, str, int, int], ...] = ()
    layers: tuple[Place, ...] = ()
    mode: str = "zero"  # output of an ablated head: "zero", or its "mean" over the sentence

    def __bool__(self) -> bool:
        return bool(self.hide or self.heads or self.layers)

    def check(self, model: Model, read: ReadSentence) -> None:
        """Refuse a change that the model or the sentence does not support.

        Raises:
            UserError: No such token, head, layer or mode, or all tokens of a stack would be hidden.
        """
        if self.mode not in ("zero", "mean"):
            raise UserError('mode must be "zero" or "mean".')
        head_set(model, self.heads)
        sizes = {stack.name: len(stack.layers) for stack in model.anatomy.stacks}
        if not all(0 <= layer < sizes.get(stack, 0) for stack, layer in self.layers):
            raise UserError(f"{model.name} has no such layer to close.")
        for stack, tokens in read.tokens.items():
            hidden = self.hidden(stack)
            if hidden and not 0 <= min(hidden) <= max(hidden) < len(tokens):
                raise UserError(
                    f"The {stack} reads {len(tokens)} tokens, counted from 0; a token to hide is out of range."
                )
            if len(hidden) == len(tokens):
                raise UserError("At least one token must stay visible. Show one again.")
        if any(stack not in read.tokens for stack, _ in self.hide):
            raise UserError(f"{model.name} has no such stack in which to hide a token.")

    def hidden(self, stack: str) -> frozenset[int]:
        """The hidden tokens of a stack."""
        return frozenset(index for name, index in self.hide if name == stack)

    def blind(self, model: Model, read: ReadSentence) -> dict[str, list[int]]:
        """By stack: first tokens of a causal stack that see nothing, since everything visible to them is hidden."""
        found: dict[str, list[int]] = {}
        for stack, tokens in read.tokens.items():
            hidden, first = self.hidden(stack), 0
            while model.anatomy.stack(stack).causal and first < len(tokens) and first in hidden:
                first += 1
            found[stack] = list(range(first))
        return found


@contextmanager
def changed(model: Model, change: Change) -> Iterator[None]:
    r"""Run the model with the change inside a `with` block; afterwards, also after an error, the model is restored.

    A hidden token is removed as key and value from every attention (`without_token` in all blocks): its position and
    its own query stay. Heads are ablated by `ablate`, with means over the sentence. A skipped layer returns its input,
    $h_{l+1} = h_l$; its attention still runs and can be inspected.
    """
    with ExitStack() as stack:
        if change.layers:
            stack.enter_context(_closed_layers(model, set(change.layers)))
        if change.hide:
            stack.enter_context(tap(model, on_attention=_hiding(change)))
        if change.heads:
            stack.enter_context(ablate(model, change.heads, change.mode))
        yield


def _hiding(change: Change) -> Callable[[AttentionCall], AttentionCall | None]:
    def hide(call: AttentionCall) -> AttentionCall | None:
        hidden = change.hidden(keys_stack(call.stack, call.kind))
        for token in sorted(hidden):
            call = without_token(call, torch.full((call.value.shape[0],), token, device=call.value.device))
        return call if hidden else None

    return hide


@contextmanager
def _closed_layers(model: Model, closed: set[Place]) -> Iterator[None]:
    calls: dict[nn.Module, int] = {}
    runs: dict[nn.Module, list[Place]] = {}
    for one in model.anatomy.stacks:
        for layer in one.layers:
            runs.setdefault(model.module.get_submodule(layer.block), []).append((one.name, layer.index))

    def restart(module: nn.Module, args: Any) -> None:
        calls.clear()

    def pass_on(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        count = calls.get(block, 0)
        calls[block] = count + 1
        if runs[block][count % len(runs[block])] not in closed:
            return None
        states = args[0] if args else kwargs["hidden_states"]
        return states if isinstance(output, Tensor) else (states, *output[1:])

    with ExitStack() as stack:
        stack.callback(model.module.register_forward_pre_hook(restart).remove)
        for block in runs:
            stack.callback(block.register_forward_hook(pass_on, with_kwargs=True).remove)
        yield
