"""Parses and bounds the requests of a page, and the interventions in them."""

# S key token, T query token

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, ablate, head_set
from infoflow.models import AttentionCall, Model, keys_stack, states_read, tap, with_states, without_token
from infoflow.report import further_views

Place = tuple[str, int]
"""A token or a layer of a stack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Tokens hidden from all attention, heads whose output is replaced, and layers that return their input."""

    hide: tuple[Place, ...] = ()
    heads: tuple[tuple[str, str, int, int], ...] = ()
    layers: tuple[Place, ...] = ()
    mode: str = "zero"  # output of an ablated head: "zero", or its "mean" over the sentence

    def __bool__(self) -> bool:
        return bool(self.hide or self.heads or self.layers)

    def check(self, model: Model, read: ReadSentence) -> None:
        """Refuse a change that the model or the sentence does not support."""
        if self.mode not in ("zero", "mean"):
            raise UserError('mode must be "zero" or "mean".')
        head_set(model, self.heads)
        sizes = {stack.name: len(stack.layers) for stack in model.anatomy.stacks}
        if not all(0 <= layer < sizes.get(stack, 0) for stack, layer in self.layers):
            raise UserError(f"{model.name} has no such layer to skip.")
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
        """By stack, the first tokens of a causal stack that see nothing, since everything visible to them is hidden."""
        found: dict[str, list[int]] = {}
        for stack, tokens in read.tokens.items():
            hidden, first = self.hidden(stack), 0
            while model.anatomy.stack(stack).causal and first < len(tokens) and first in hidden:
                first += 1
            found[stack] = list(range(first))
        return found


@contextmanager
def changed(model: Model, change: Change, in_weights: bool = False) -> Iterator[None]:
    r"""Run the model with the change inside a `with` block; afterwards, also after an error, the model is restored.

    A hidden token is removed as key and value from every attention (`without_token` in all blocks): its position and
    its own query stay. Heads are ablated by `ablate`, with means over the sentence. A skipped layer returns its input,
    $h_{l+1} = h_l$; its attention still runs and can be inspected. With `in_weights` a head that gives zeros has
    attention weights of 0: its output is the same, but everything computed from the weights sees the ablation.
    """
    closed = change.heads if in_weights and change.mode == "zero" else ()
    with ExitStack() as stack:
        if change.layers:
            stack.enter_context(_closed_layers(model, set(change.layers)))
        if change.hide or closed:
            stack.enter_context(tap(model, on_attention=_edit(change, closed)))
        if change.heads and not closed:
            stack.enter_context(ablate(model, change.heads, change.mode))
        yield


def _edit(change: Change, closed: tuple[tuple[str, str, int, int], ...]) -> Callable[[AttentionCall], AttentionCall]:
    def edit(call: AttentionCall) -> AttentionCall:
        for token in sorted(change.hidden(keys_stack(call.stack, call.kind))):
            call = without_token(call, torch.full((call.value.shape[0],), token, device=call.value.device))
        heads = [head for *place, head in closed if place == [call.stack, call.kind, call.layer]]
        if not heads:
            return call
        weights = call.weights.clone()
        weights[:, heads] = 0
        return call.edited(weights=weights)

    return edit


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
        return with_states(output, states_read(args, kwargs))

    with ExitStack() as stack:
        stack.callback(model.module.register_forward_pre_hook(restart).remove)
        for block in runs:
            stack.callback(block.register_forward_hook(pass_on, with_kwargs=True).remove)
        yield


# Parses and bounds the JSON requests of a page: nothing else reaches the models.


WANTS = ("attention", "lens", "relevance", "influence")
MOST_CHARACTERS = 2000
_MOST_PARTS = 4096  # heads of a large model
_MOST_NUMBER = 1 << 31
_MOST_CHOICES = 8


class BadRequest(Exception):
    """A malformed request, which the explorer's pages never send; the text describes the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """One request."""

    page: str  # the requesting page, whose newer request of one kind replaces its older one
    model: int = 0
    text: str = ""
    translation: str | None = None
    pair: str | None = None
    key: str = ""  # of an earlier response, instead of a text
    want: tuple[str, ...] = ()
    position: int | None = None
    target: int | None = None
    against: int | None = None
    method: str | None = None
    change: Change = Change()
    sweep: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)  # of a subject's view


_NAMES = (
    "page", "model", "text", "translation", "pair", "key", "want", "position", "target", "against", "method",
    "hide", "close", "mode", "sweep", "choices",
)  # fmt: skip


def parsed(given: Any) -> HttpRequest:
    """A request from its JSON.

    Raises:
        BadRequest: A field is unknown, of another type, or too large.
    """
    if not isinstance(given, dict):
        raise BadRequest("A request must be a JSON object.")
    if unknown := [name for name in given if name not in _NAMES]:
        raise BadRequest(f"Unknown field {str(unknown[0])[:40]}.")
    want = _list(given, "want")
    if not all(one in (wants := (*WANTS, *further_views())) for one in want):
        raise BadRequest(f"want must be among {', '.join(wants)}.")
    sweep = _text(given, "sweep", 10)
    if sweep not in ("", "heads"):
        raise BadRequest("sweep must contain heads.")
    return HttpRequest(
        page=_text(given, "page", 40),
        model=_number(given, "model") or 0,
        text=_text(given, "text", MOST_CHARACTERS),
        translation=_text(given, "translation", MOST_CHARACTERS) or None,
        pair=_text(given, "pair", MOST_CHARACTERS) or None,
        key=_text(given, "key", 80),
        want=tuple(want),
        position=_number(given, "position"),
        target=_number(given, "target"),
        against=_number(given, "against"),
        method=_text(given, "method", 40) or None,
        change=_change(given),
        sweep=sweep,
        choices=_choices(given),
    )


def _change(given: Mapping[str, Any]) -> Change:
    close = given.get("close")
    close = {} if close is None else close
    if not isinstance(close, dict) or any(name not in ("heads", "layers") for name in close):
        raise BadRequest("close must contain heads and layers.")
    return Change(
        hide=tuple(_place(one, 2) for one in _list(given, "hide")),
        heads=tuple(_place(one, 4) for one in _list(close, "heads")),
        layers=tuple(_place(one, 2) for one in _list(close, "layers")),
        mode=_text(given, "mode", 10) or "zero",
    )


def _choices(given: Mapping[str, Any]) -> dict[str, str]:
    choices = given.get("choices") or {}
    if not isinstance(choices, dict) or len(choices) > _MOST_CHOICES or any(len(name) > 20 for name in choices):
        raise BadRequest(f"choices must be an object of at most {_MOST_CHOICES} texts.")
    return {name: _text(choices, name, MOST_CHARACTERS) for name in choices}


def _place(given: Any, size: int) -> Any:
    """A place in the model: names, then numbers: (stack, index), or (stack, kind, layer, head)."""
    names = size // 2
    fits = isinstance(given, list) and len(given) == size
    if not fits or not all(isinstance(one, str) and len(one) <= 20 for one in given[:names]):
        raise BadRequest("A position must be a list of names and numbers.")
    if not all(_is_number(one) for one in given[names:]):
        raise BadRequest("A position must be a list of names and numbers.")
    return tuple(given)


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST_PARTS:
        raise BadRequest(f"{name} must be a list of at most {_MOST_PARTS:,}.")
    return value


def _text(given: Mapping[str, Any], name: str, most: int) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text.")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise BadRequest(f"{name} contains half of a surrogate pair, which is not text.")
    if len(value) > most:
        raise BadRequest(f"{name} has {len(value):,} characters; at most {most:,} are read.")
    return value


def _number(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not _is_number(value):
        raise BadRequest(f"{name} must be a number from 0.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NUMBER
