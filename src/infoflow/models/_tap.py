"""Read or gate the internals of a forward pass, without changing the model."""

# L layers, B batch, H query head, T query token, S key token, d head width, D model width

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.foundation import UserError

from ._anatomy import OwnCode
from ._attention import Listener, listening
from ._attention_call import AtSite, AttentionCall, Site
from ._model import Model
from ._modules import states_of, states_read
from ._placed import is_placed

StackKind = tuple[str, str]
Gates = Mapping[StackKind, Tensor | Sequence[Tensor]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeadCall(AtSite):
    """The heads' outputs of one attention on their way into the output projection."""

    site: Site
    module: nn.Module  # the output projection
    heads: Tensor  # (B, T, H, d), gated already


@dataclass(kw_only=True, slots=True, eq=False)
class Tap:
    """Records of the latest forward pass. Tensors are in the autograd graph if gradients are enabled.

    They are on `model.device`; tensors of layers on other devices are moved there. Attention weights are float32 or
    wider, even in a half-precision model. A layer without attention (hybrid models) has tensors with 0 heads. In
    training, a layer skipped by LayerDrop has an empty tensor.

    | field | key | value |
    |---|---|---|
    | `hidden` | stack | L+1 states (B, T, D): input of block 0, then each block's own output, before a final norm |
    | `attention` | (stack, kind) | L weights (B, H, T, S), after softmax, before dropout |
    | `visible` | (stack, kind) | L masks (B, T, S) of the keys that a query may look at; kept with `attention` |
    | `heads` | (stack, kind) | L inputs of the output projection (B, T, H, d), gated |
    """

    hidden: dict[str, list[Tensor]] = field(default_factory=dict)
    attention: dict[StackKind, list[Tensor]] = field(default_factory=dict)
    visible: dict[StackKind, list[Tensor]] = field(default_factory=dict)
    heads: dict[StackKind, list[Tensor]] = field(default_factory=dict)

    def clear(self) -> None:
        """Release the tensors; the next forward pass fills the tap again."""
        for kept in (self.hidden, self.attention, self.visible, self.heads):
            kept.clear()


@contextmanager
def tap(
    model: Model,
    *,
    hidden: bool = False,
    attention: bool = False,
    heads: bool = False,
    gates: Gates | None = None,
    on_attention: Callable[[AttentionCall], AttentionCall | None] | None = None,
    on_heads: Callable[[HeadCall], Tensor | None] | None = None,
    query_block: int | None = None,
) -> Iterator[Tap]:
    """Watch, gate or edit the forward passes of `model.module` inside the `with` block.

    Args:
        model: A loaded model; call `model.module(...)` inside the block.
        hidden: Keep the states of every stack.
        attention: Keep the attention weights. Memory is layers x heads x T x T: use `on_attention` to reduce them.
        heads: Keep each head's output.
        gates: By (stack, kind), a number per head that multiplies its output before the output projection: a tensor
            (L, H), or (L, B, H) for a gate per example, or a list of L such rows. Differentiable.
        on_attention: Called at every attention; may return `call.edited(...)` to change the computation.
        on_heads: Called before every output projection with the gated head outputs; may return replacements.
        query_block: `on_attention` gets at most this many queries at a time, so that T x T weights are never in memory.

    `hidden`, `heads`, `gates` and `on_heads` keep the attention implementation (SDPA by default); `attention` and
    `on_attention` run the model through infoflow's own, equal to eager attention, or observe the code of a family that
    computes attention itself. On exit, also after an error, hooks are removed and every configuration gets its
    implementation back. Taps can be nested: an inner one sees the outer ones' changes, and leaves them in place.

    >>> gates = torch.ones(3, 4)  # three layers of four heads
    >>> gates[2, 1] = 0
    >>> with torch.no_grad(), tap(model, hidden=True, heads=True, gates={("encoder", "self"): gates}) as seen:
    ...     output = model.module(**model_inputs(model, torch.tensor([[5, 6, 7]])))
    >>> len(seen.hidden["encoder"]), seen.heads["encoder", "self"][2][0, :, 1].abs().max()
    (4, tensor(0.))
    """
    _check_checkpointing(model)
    _check_gates(model, gates or {})
    _check_blocks(model, attention, query_block)
    result, rounds = Tap(), _Rounds(model)
    with ExitStack() as stack:

        def restart(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            rounds.restart()
            if module.training:  # LayerDrop may skip layer 0, where lists restart
                result.clear()

        stack.enter_context(model.module.register_forward_pre_hook(restart))
        if hidden:
            _tap_blocks(model, stack, result, rounds)
        if heads or gates or on_heads:
            _tap_projections(model, stack, _ProjectionTap(result, rounds, heads, gates or {}, on_heads))
        if attention or on_attention:
            listener = _attention_listener(result, rounds, attention, on_attention)
            modules = {model.module.get_submodule(one.module) for one in model.anatomy.attentions()}
            if modules:  # otherwise the model keeps its own attention
                heard = dict.fromkeys(modules, listener)
                stack.enter_context(listening(model.module, heard, _own_codes(model), query_block))
        yield result


def open_gates(model: Model, num: int, dtype: torch.dtype = torch.float32) -> dict[StackKind, list[Tensor]]:
    """Gates of 1 for each of `num` examples, (num, H) in each layer, with gradients."""
    like: dict[str, Any] = {"device": model.device, "dtype": dtype, "requires_grad": True}
    return {key: [torch.ones(num, heads, **like) for heads in row] for key, row in model.anatomy.head_numbers().items()}


class _Rounds:
    """Finds a module's layer by counting its calls: shared modules (ALBERT) run once per layer, in order."""

    def __init__(self, model: Model) -> None:
        self.blocks: dict[nn.Module, list[Site]] = {}
        self.attentions: dict[nn.Module, list[Site]] = {}
        self.projections: dict[nn.Module, list[Site]] = {}
        self._calls: dict[tuple[str, nn.Module], int] = {}
        self._home = model.device if is_placed(model.module) else None
        self.rows: dict[StackKind, range] = {}  # from the first layer with this attention on
        for stack in model.anatomy.stacks:
            for kind in stack.kinds:
                first = next(layer.index for layer in stack.layers if kind in layer.attentions)
                self.rows[stack.name, kind] = range(first, len(stack.layers))
            for layer in stack.layers:
                block = Site(stack=stack.name, kind="block", layer=layer.index)
                self.blocks.setdefault(model.module.get_submodule(layer.block), []).append(block)
        for one in model.anatomy.attentions():
            site = Site(stack=one.stack, kind=one.kind, layer=one.layer)
            self.attentions.setdefault(model.module.get_submodule(one.module), []).append(site)
            self.projections.setdefault(model.module.get_submodule(one.output_projection), []).append(site)

    def restart(self) -> None:
        """Reset for a new forward pass: the previous one may have failed halfway."""
        self._calls.clear()

    def kept(self, tensor: Tensor) -> Tensor:
        """The tensor on the device of the model's inputs."""
        return tensor if self._home is None else tensor.to(self._home)

    def site(self, channel: str, module: nn.Module, advance: bool = True) -> Site:
        sites: list[Site] = getattr(self, channel)[module]
        if len(sites) == 1:
            return sites[0]
        count = self._calls.get((channel, module), 0)
        if advance:
            self._calls[channel, module] = count + 1
        return sites[count % len(sites)]


def _store(
    slots: dict[Any, list[Tensor]], key: Any, index: int, rows: range, value: Tensor, gap: Tensor | None = None
) -> None:
    """Store a layer's value; the first layer starts a new list, so that passes never mix. `gap` fills other layers."""
    if index == rows.start or key not in slots:
        slots[key] = [value.new_empty(0) if gap is None else gap] * rows.stop
    slots[key][index] = value


def _tap_blocks(model: Model, stack: ExitStack, result: Tap, rounds: _Rounds) -> None:
    stacks = {one.name: one for one in model.anatomy.stacks}

    def keep(site: Site, index: int, states: Tensor) -> None:
        own = stacks[site.stack]
        _store(result.hidden, site.stack, index, range(len(own.layers) + 1), rounds.kept(own.joined(states)))

    def before(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        site = rounds.site("blocks", block, advance=False)
        if site.layer == 0:
            keep(site, 0, states_read(args, kwargs))

    def after(block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        site = rounds.site("blocks", block)
        keep(site, site.layer + 1, states_of(output))

    for block in rounds.blocks:
        stack.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
        stack.enter_context(block.register_forward_hook(after))


@dataclass(frozen=True, slots=True, eq=False)
class _ProjectionTap:
    """Hooks on the input of an output projection, the only point where heads are separable."""

    result: Tap
    rounds: _Rounds
    keep: bool
    gates: Gates
    edit: Callable[[HeadCall], Tensor | None] | None

    def hook(self, num_heads: int, head_dim: int) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
        def before(projection: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            site = self.rounds.site("projections", projection)
            heads_BTHd = args[0].unflatten(-1, (num_heads, head_dim))
            changed_BTHd = self._changed(site, projection, heads_BTHd)
            if self.keep:
                key = site.stack, site.kind
                rows = self.rounds.rows[key]
                kept_BTHd = self.rounds.kept(changed_BTHd)
                _store(self.result.heads, key, site.layer, rows, kept_BTHd, gap=kept_BTHd[:, :, :0])
            # Untouched input is passed on as the same tensor, so that a tap that only reads changes nothing.
            return args if changed_BTHd is heads_BTHd else (changed_BTHd.flatten(-2), *args[1:])

        return before

    def _changed(self, site: Site, projection: nn.Module, heads_BTHd: Tensor) -> Tensor:
        rows = self.gates.get((site.stack, site.kind))
        if rows is not None:
            gate = rows[site.layer].to(heads_BTHd.device)
            if gate.dim() == 2 and gate.shape[0] not in (1, heads_BTHd.shape[0]):
                raise UserError(
                    f"Gates per example must match the batch: {gate.shape[0]} rows of gates for "
                    f"{heads_BTHd.shape[0]} sentences in {site.stack} {site.kind}-attention."
                )
            gate = gate[:, None, :, None] if gate.dim() == 2 else gate[:, None]
            heads_BTHd = heads_BTHd * gate.to(heads_BTHd.dtype)
        if self.edit is not None:
            replacement = self.edit(HeadCall(site=site, module=projection, heads=heads_BTHd))
            heads_BTHd = heads_BTHd if replacement is None else replacement
        return heads_BTHd


def _tap_projections(model: Model, stack: ExitStack, projection_tap: _ProjectionTap) -> None:
    heads = {
        model.module.get_submodule(one.output_projection): (one.num_heads, one.head_dim)
        for one in model.anatomy.attentions()
    }
    for projection, shape in heads.items():
        stack.enter_context(projection.register_forward_pre_hook(projection_tap.hook(*shape)))


def _own_codes(model: Model) -> dict[nn.Module, OwnCode]:
    codes = {model.module.get_submodule(one.module): one.own for one in model.anatomy.attentions()}
    return {module: code for module, code in codes.items() if code is not None}


def _attention_listener(
    result: Tap, rounds: _Rounds, keep: bool, edit: Callable[[AttentionCall], AttentionCall | None] | None
) -> Listener:
    latest: list[tuple[Tensor | None, Tensor | None, Tensor]] = []

    def visible(call: AttentionCall) -> Tensor:
        """The visible keys of a call; layers with the same mask share one tensor."""
        shape = call.weights.shape[:1] + call.weights.shape[2:]
        for mask, bias, found in latest:
            if mask is call.mask and bias is call.position_bias and found.shape == shape:
                return found
        latest[:] = [(call.mask, call.position_bias, rounds.kept(call.visible()))]
        return latest[0][2]

    def listen(call: AttentionCall) -> AttentionCall:
        call = replace(call, site=rounds.site("attentions", call.module, advance=call.is_last))
        if edit is not None:
            edited = edit(call)
            assert edited is None or isinstance(edited, AttentionCall), "on_attention returns call.edited(...) or None"
            call = call if edited is None else edited
        if keep:
            assert call.num_queries in (0, call.weights.shape[2]), "an inner tap with query_block leaves only blocks"
            key, mask = (call.stack, call.kind), visible(call)
            weights = rounds.kept(call.weights)
            _store(result.attention, key, call.layer, rounds.rows[key], weights, gap=weights[:, :0])
            _store(result.visible, key, call.layer, rounds.rows[key], mask, gap=mask)
        return call

    return listen


def _check_blocks(model: Model, attention: bool, query_block: int | None) -> None:
    if query_block is None:
        return
    if attention or query_block < 1:
        raise UserError(
            "query_block must be at least 1 and goes with on_attention: attention=True keeps all queries. Got "
            f"{query_block} and attention={attention}."
        )
    if _own_codes(model):
        raise UserError(
            f"{model.name} computes attention in its own code, for all queries at once, so it cannot be read by blocks "
            "of queries. Leave query_block out, or read shorter texts."
        )


def _check_checkpointing(model: Model) -> None:
    if model.module.training and getattr(model.module, "is_gradient_checkpointing", False):
        raise UserError(
            "A tap cannot be used with activation checkpointing in training: blocks run a second time in "
            "the backward pass. Call gradient_checkpointing_disable() first."
        )


def _check_gates(model: Model, gates: Gates) -> None:
    numbers = model.anatomy.head_numbers()
    for key, rows in gates.items():
        if key not in numbers:
            raise UserError(f"Gates must name a stack and kind of {model.name}: {sorted(numbers)}. Got {key}.")
        heads = numbers[key]
        given = [tuple(row.shape) for row in rows]
        attends = model.anatomy.stack(key[0]).layers  # a row of a layer without attention has no effect
        if len(given) != len(heads) or any(
            len(shape) not in (1, 2) or (shape[-1] != num and key[1] in layer.attentions)
            for shape, num, layer in zip(given, heads, attends, strict=False)
        ):
            raise UserError(
                f"Gates of {key} must have shape (layers, heads) or (layers, batch, heads) with {len(heads)} layers of "
                f"{', '.join(map(str, dict.fromkeys(heads)))} heads. Got one row per layer of shapes {given}."
            )
