"""The parts of a model whose values can be swapped, and the code that reads and writes them in a forward pass."""

# V variant, B pair, T token, H head, d head width, D width

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from infoflow.foundation import UserError, current_display, did_you_mean
from infoflow.models import (
    AttentionCall,
    HeadCall,
    Model,
    Stack,
    feed_forward_outputs,
    module_outputs,
    reading,
    states_of,
    states_read,
    tap,
    with_states,
)

from ._encoded import POSITIONS, PairBatch

HEAD, QUERY, KEY, VALUE = "head", "query", "key", "value"
ATTENTION, FEED_FORWARD, RESIDUAL = "attention", "feed-forward", "residual"
INPUTS = (QUERY, KEY, VALUE)
"""Parts of a single head that need infoflow's own attention."""
PARTS = (HEAD, *INPUTS, ATTENTION, FEED_FORWARD, RESIDUAL)
DEFAULT = (HEAD, ATTENTION, FEED_FORWARD, RESIDUAL)
ALL = "all"
"""All positions."""


class Slot(NamedTuple):
    """A tensor of a forward pass whose value can be read and replaced."""

    name: str  # head, query, key, value, feed-forward, residual
    stack: str
    kind: str  # kind of attention; "" elsewhere
    layer: int  # number of the block; 0..L for residual states


@dataclass(frozen=True, slots=True)
class Part:
    """What is swapped: a tensor, one of its heads, or some of its positions."""

    name: str
    stack: str
    kind: str
    layer: int
    head: int = -1
    position: str = ALL

    @property
    def slot(self) -> Slot:
        return Slot(HEAD if self.name == ATTENTION else self.name, self.stack, self.kind, self.layer)

    def of(self, value: Tensor) -> Tensor:
        """A view of the slice of the slot's value that belongs to this part, for one variant."""
        if self.head < 0:
            return value
        return value[:, :, self.head] if self.name == HEAD else value[:, self.head]


def check_parts(names: Sequence[str]) -> tuple[str, ...]:
    """The names in order.

    Raises:
        UserError: A name is unknown, or there are none.
    """
    if unknown := [name for name in names if name not in PARTS]:
        raise UserError(
            f"There is no part {unknown[0][:80]}.{did_you_mean(unknown[0], PARTS)} Choose among {', '.join(PARTS)}."
        )
    if not names:
        raise UserError(f"At least one part is needed. Choose among {', '.join(PARTS)}.")
    return tuple(name for name in PARTS if name in names)


def parts_of(model: Model, names: Sequence[str]) -> list[Part]:
    """Every part of these kinds; a note names the kinds that the model does not have."""
    found: list[Part] = []
    for name in names:
        if name == FEED_FORWARD:
            found += _feed_forward(model)
        elif name == RESIDUAL:
            found += [
                Part(name, stack.name, "", layer, position=position)
                for stack in model.anatomy.stacks
                for layer in range(len(stack.layers) + 1)
                for position in POSITIONS
            ]
        else:
            found += _of_attention(model, name)
    return found


def token_parts(model: Model, batch: PairBatch) -> list[Part]:
    """Every residual state at every token of a batch."""
    return [
        Part(RESIDUAL, stack.name, "", layer, position=str(position))
        for stack in model.anatomy.stacks
        for layer in range(len(stack.layers) + 1)
        for position in range(batch.at("all", stack.name).shape[1])
    ]


def _of_attention(model: Model, name: str) -> list[Part]:
    every = [one for one in model.anatomy.attentions() if one.num_heads]
    read = [one for one in every if name not in (QUERY, KEY) or one.own is None or one.own.scaling is not None]
    if len(read) < len(every):
        current_display().note(f"{model.name} has attention scores that are not products of {name} and a vector.")
    if name == ATTENTION:
        return [Part(name, one.stack, one.kind, one.layer) for one in read]
    return [Part(name, one.stack, one.kind, one.layer, head) for one in read for head in range(one.num_heads)]


def _feed_forward(model: Model) -> list[Part]:
    try:
        names = [(stack, feed_forward_outputs(model, stack.name)) for stack in model.anatomy.stacks]
    except UserError as error:
        current_display().note(f"Feed-forward parts are left out. {error}")
        return []
    return [Part(FEED_FORWARD, stack.name, "", layer) for stack, own in names for layer in range(len(own))]


See = Callable[[Slot, Tensor], Tensor | None]
"""Receives the value of a slot; may return another one."""


@contextmanager
def seen_parts(model: Model, names: set[str], see: See) -> Iterator[None]:
    """Call `see` for every slot of these names in the forward passes inside the `with` block."""

    def on_heads(call: HeadCall) -> Tensor | None:
        return see(Slot(HEAD, call.stack, call.kind, call.layer), call.heads)

    def on_attention(call: AttentionCall) -> AttentionCall | None:
        changes: dict[str, Any] = {}
        for name in names & {*INPUTS}:
            value = getattr(call, name)
            new = None if value is None else see(Slot(name, call.stack, call.kind, call.layer), value)
            changes |= {} if new is None else {name: new}
        return call.edited(**changes) if changes else None

    with ExitStack() as stack:
        for one in model.anatomy.stacks if RESIDUAL in names else ():
            stack.enter_context(_states(model, one, see))
        for one in model.anatomy.stacks if FEED_FORWARD in names else ():
            edit = _at(see, FEED_FORWARD, one.name)
            stack.enter_context(module_outputs(model, feed_forward_outputs(model, one.name), edit))
        heads = on_heads if names & {HEAD, ATTENTION} else None
        attention = on_attention if names & {*INPUTS} else None
        if heads or attention:
            stack.enter_context(tap(model, on_heads=heads, on_attention=attention))
        yield


def _at(see: See, name: str, stack: str) -> Callable[[int, Tensor], Tensor | None]:
    return lambda layer, value: see(Slot(name, stack, "", layer), value)


@contextmanager
def _states(model: Model, stack: Stack, see: See) -> Iterator[None]:
    """The residual states: the input of the first block, and each block's output."""
    calls = 0

    def before(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal calls
        first, calls = calls % (len(stack.layers) if stack.shared else 1) == 0, calls + 1
        new = see(Slot(RESIDUAL, stack.name, "", 0), stack.joined(states_read(args, kwargs))) if first else None
        return None if new is None else reading(args, kwargs, stack.parted(new))

    def after(layer: int, output: Any) -> Any:
        new = see(Slot(RESIDUAL, stack.name, "", layer + 1), stack.joined(states_of(output)))
        return None if new is None else with_states(output, stack.parted(new))

    first = model.module.get_submodule(stack.layers[0].block)
    handle = first.register_forward_pre_hook(before, with_kwargs=True)
    try:
        with module_outputs(model, [layer.block for layer in stack.layers], after):
            yield
    finally:
        handle.remove()
