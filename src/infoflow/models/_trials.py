"""Checks by `load_model` before any measurement: whether the model's states are what they should be.

There is no list of families: a few tiny forward passes reveal a model that returns something other than its residual
stream, whose results depend on padding, or whose tokens interact outside attention.
"""

# B sentence, T token, D width

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import Cache
from infoflow.foundation import UserError

from ._anatomy import Anatomy, Stack
from ._attention_call import AttentionCall
from ._first_pass import logits_or_first, runs_alone, tiny_inputs
from ._losses import accepts, without_cache
from ._model import Model, position_tables
from ._modules import all_returning, reading, run_again, states_of, states_read, with_states
from ._rerun import without_token
from ._tap import tap

_CHANGED = 1  # index of the changed token: not the first, with neighbours on both sides
_ROUNDING = 16  # machine epsilons by which other rows of a batch may change a state in one block, relative to its norm
_DEEP = 256  # the same over many layers, for a batch of another shape: 3e-5 in float32
_OTHERS = 1000  # above this, a sentence of equal length changes more than rounding
_NOISE = 8  # allowed factor of padding over sentences of equal length in one batch


@dataclass(kw_only=True, slots=True, eq=False)
class _Seen:
    """One forward pass on a tiny sentence, which the batch holds twice."""

    hidden: dict[str, list[Tensor]]  # stack → L+1 states (2, T, D), as in a tap
    inputs: dict[str, list[Tensor]] = field(default_factory=dict)  # stack → input of each block
    outputs: dict[nn.Module, Any] = field(default_factory=dict)  # block → its latest output
    leaks: dict[str, list[bool]] = field(default_factory=dict)  # stack → by layer: tokens interact outside attention
    tables: dict[str, None] = field(default_factory=dict)  # names of position tables that were read


def tried(model: Model) -> Model:
    """Add what a trial shows to the model: whether rows may be padded, and where tokens interact outside attention."""
    inputs = {name: ids.repeat(2, 1) for name, ids in tiny_inputs(model.module).items()}
    with torch.no_grad():
        seen = _look(model, inputs)
        model = _with_layout(model, seen, inputs)
        if any(stack.layout for stack in model.anatomy.stacks):
            seen = _look(model, inputs)
        _require_one_stream(model, seen, inputs)
        _require_the_stream(model, seen)
        _require_the_last_state(model, seen, inputs)
        pads = _pads(model, {stack: [state[:1] for state in states] for stack, states in seen.hidden.items()}, inputs)
    return replace(model, pads=pads, anatomy=_anatomy(model.anatomy, seen), position_tables=tuple(seen.tables))


def _anatomy(anatomy: Anatomy, seen: _Seen) -> Anatomy:
    """Add what a tapped pass shows to the anatomy: other paths, and the width of states (not of MobileBERT's heads)."""
    stacks = tuple(
        replace(
            stack,
            width=seen.hidden[stack.name][0].shape[-1],
            layers=tuple(
                replace(layer, other_paths=leaks or not layer.attentions)
                for layer, leaks in zip(stack.layers, seen.leaks[stack.name], strict=True)
            ),
        )
        for stack in anatomy.stacks
    )
    return replace(anatomy, stacks=stacks)


def _look(model: Model, inputs: dict[str, Tensor]) -> _Seen:
    """One pass in which every block also runs on its input with one token changed and hidden as a key."""
    hiding = False

    def on_attention(call: AttentionCall) -> AttentionCall | None:
        if not hiding or call.kind != "self":
            return None
        return without_token(call, torch.full((call.value.shape[0],), _CHANGED, device=call.value.device))

    seen = _Seen(hidden={})

    def after(stack: Stack) -> Callable[..., None]:
        def hook(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            nonlocal hiding
            states = stack.joined(states_read(args, kwargs))
            leaks = seen.leaks.setdefault(stack.name, [])
            seen.inputs.setdefault(stack.name, []).append(states)
            seen.outputs[block] = output
            if any(isinstance(given, Cache) for given in (*args, *kwargs.values())):
                # A second run would append to the cache (XLM always fills one).
                leaks.append(True)
            elif states.dim() == 3:
                hiding = True
                found = run_again(block, *reading(args, kwargs, stack.parted(_one_changed(states))))
                hiding = False
                leaks.append(_differ(stack.joined(found)))

        return hook

    with ExitStack() as restore, tap(model, hidden=True, on_attention=on_attention) as tapped:
        for stack in model.anatomy.stacks:
            for block in {model.module.get_submodule(layer.block) for layer in stack.layers}:
                restore.enter_context(block.register_forward_hook(after(stack), with_kwargs=True))
        for name, table in position_tables(model.module).items():
            restore.enter_context(table.register_forward_hook(lambda *_, name=name: seen.tables.update({name: None})))
        _run(model, inputs)
    seen.hidden = dict(tapped.hidden)
    return seen


def _run(model: Model, inputs: dict[str, Tensor], **more: Any) -> Any:
    running = runs_alone(model.module)
    more = {name: value for name, value in more.items() if accepts(running, name)} | without_cache(running)
    return running(**inputs, **more)


def _one_changed(states_BTD: Tensor) -> Tensor:
    """The states with one token changed in the second copy of the sentence."""
    changed = states_BTD.clone()
    changed[1, _CHANGED] = 1.5 * states_BTD[1, _CHANGED].flip(-1) - states_BTD[1, _CHANGED]
    return changed


def _differ(output_BTD: Tensor) -> bool:
    """Whether any token other than the changed one differs between the two sentences."""
    others = torch.arange(output_BTD.shape[1], device=output_BTD.device) != _CHANGED
    kept, changed = output_BTD[0, others], output_BTD[1, others]
    return not _distance(changed, kept) <= _ROUNDING * _epsilon(kept)


def _distance(found_TD: Tensor, expected_TD: Tensor) -> float:
    """Largest difference of a token's state, relative to the largest norm, so that tokens of norm 0 (padding) count.

    0 if states are not finite: a measurement names the layer where that begins.
    """
    if not bool(expected_TD.isfinite().all()):
        return 0.0
    scale = expected_TD.float().norm(dim=-1).max().clamp(min=torch.finfo(torch.float32).tiny)
    return float((found_TD - expected_TD).float().norm(dim=-1).max() / scale)


def _epsilon(states: Tensor) -> float:
    """Machine epsilon of the states; float32's in a float64 model too, since many families compute norms in float32."""
    return max(torch.finfo(states.dtype).eps, torch.finfo(torch.float32).eps)


def _ids_of(stack: Stack, inputs: dict[str, Tensor]) -> Tensor:
    own = "decoder_input_ids" if "decoder_input_ids" in inputs and stack.name == "decoder" else "input_ids"
    return inputs[own]


def _with_layout(model: Model, seen: _Seen, inputs: dict[str, Tensor]) -> Model:
    """The model with the layout of its blocks' states: with the token first (XLNet), or streams (Gemma 3n)."""
    stacks = []
    for stack in model.anatomy.stacks:
        shape, tokens = seen.hidden[stack.name][0].shape, tuple(_ids_of(stack, inputs).shape)
        found = [
            order
            for order in permutations(range(len(shape)))
            if tuple(shape[dim] for dim in order[:2]) == tokens and list(order[2:]) == sorted(order[2:])
        ]
        layout = found[0] if len(found) == 1 and len(shape) in (3, 4) else ()
        streams = shape[layout[2]] if len(layout) == 4 else 1
        stacks.append(replace(stack, layout=() if layout == (0, 1, 2) else layout, streams=streams))
    return replace(model, anatomy=replace(model.anatomy, stacks=tuple(stacks)))


def _require_one_stream(model: Model, seen: _Seen, inputs: dict[str, Tensor]) -> None:
    if any(hasattr(output, "_fields") for output in seen.outputs.values()):
        raise UserError(
            f"The blocks of {_family(model)} return several named results, as reversible models with two residual "
            "streams do (Reformer). infoflow needs one vector per token; analyse a model of another family."
        )
    for stack in model.anatomy.stacks:
        if len(stack.layout) == 3 and stack.kinds:
            raise UserError(
                f"{_family(model)} has the token dimension before the batch dimension, so its heads cannot be read by "
                "sentence. Analyse a model of another family."
            )
        ids = _ids_of(stack, inputs)
        for layer, states in enumerate(seen.hidden[stack.name]):
            if states.dim() != 3 or states.shape[:2] != ids.shape:
                raise UserError(
                    f"{_family(model)} returns states of shape {tuple(states.shape)} for {ids.shape[0]} sentences of "
                    f"{ids.shape[1]} tokens (state {layer} of its {stack.name}): not one vector for each token, as "
                    "models that shorten the text do. Analyse a model of another family."
                )


def _require_the_stream(model: Model, seen: _Seen) -> None:
    """Check that each block reads the previous block's output."""
    for stack in model.anatomy.stacks:
        returned, read = seen.hidden[stack.name], seen.inputs[stack.name]
        if len(read) != len(stack.layers):
            raise UserError(
                f"{_family(model)} runs its {len(stack.layers)} blocks {len(read)} times in one forward pass of its "
                f"{stack.name}, so its layers cannot be numbered. Analyse a model of another family."
            )
        for layer in range(1, len(read)):
            if returned[layer].shape != read[layer].shape or not _equal(returned[layer], read[layer]):
                raise UserError(_not_the_stream(model, stack.name, layer))


def _not_the_stream(model: Model, stack: str, layer: int) -> str:
    layers = model.anatomy.stack(stack).layers
    first, second = layers[layer - 1].block, layers[layer].block
    why = "something else runs between them"
    if first.rpartition(".")[0].rpartition(".")[0] and first.rpartition(".")[0] == second.rpartition(".")[0]:
        outer = (first.rsplit(".", depth)[0] for depth in range(1, first.count(".") + 1))
        if sum(isinstance(model.module.get_submodule(path), nn.ModuleList) for path in outer) > 1:
            why = f"they are parts of one block, which has several attentions of one kind ({first}, {second})"
    return (
        f"What {first} of {_family(model)} returns is not what {second} reads: {why}, so the outputs of its "
        f"{stack}'s blocks are not the states between them. infoflow needs blocks that follow one another with one "
        "attention of each kind; analyse a model of another family."
    )


def _require_own_states(model: Model, hidden: dict[str, list[Tensor]], output: Any) -> None:
    """Compare with the model's own `output_hidden_states`, if it has any: all but the last, which may follow a norm.

    Mamba and RWKV leave out the embeddings, and return the last state before and after the norm.
    """
    for stack in model.anatomy.stacks:
        own, ours = _own_states(model, stack.name, output), hidden[stack.name]
        if own is None:
            continue
        forms = [own[:-1], [stack.joined(one) for one in own[:-1]]]  # XLNet returns them in order, Gemma 3n does not
        if len(own) != len(ours) or not any(_all_equal(part, f) for part in (ours[:-1], ours[1:]) for f in forms):
            raise UserError(
                f"The states between the blocks of {_family(model)} are not those that it returns itself with "
                f"output_hidden_states ({len(ours)} and {len(own)} of its {stack.name}), so infoflow does not know its "
                "layers. Analyse a model of another family."
            )


def _all_equal(ours: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    return all(mine.shape == its.shape and _equal(mine, its) for mine, its in zip(ours, own, strict=True))


def _own_states(model: Model, stack: str, output: Any) -> tuple[Tensor, ...] | None:
    found = getattr(output, f"{stack}_hidden_states" if len(model.anatomy.stacks) > 1 else "hidden_states", None)
    return found if isinstance(found, tuple) and found and all(isinstance(one, Tensor) for one in found) else None


def _require_the_last_state(model: Model, seen: _Seen, inputs: dict[str, Tensor]) -> None:
    """Check that the output depends on the last block's output: another state must change it."""
    stack = model.anatomy.predicts.name
    last = model.module.get_submodule(model.anatomy.predicts.layers[-1].block)
    same = logits_or_first(_passed_over(model, seen.outputs, inputs))
    changed = dict(seen.outputs)
    states = states_of(changed[last])
    changed[last] = with_states(changed[last], 1.5 * states.flip(-1) - states)
    if bool(same.isfinite().all()) and _equal(logits_or_first(_passed_over(model, changed, inputs)), same):
        raise UserError(
            f"What the last block of {_family(model)}'s {stack} returns has no effect on the model's output, so it is "
            "not the state that the output comes from. Analyse a model of another family."
        )


def _passed_over(model: Model, outputs: dict[nn.Module, Any], inputs: dict[str, Tensor]) -> Any:
    """The forward pass with blocks that only return `outputs`."""
    with all_returning(outputs):
        return _run(model, inputs)


def _equal(found: Tensor, expected: Tensor) -> bool:
    return _distance(found, expected) <= _ROUNDING * _epsilon(expected)


def _pads(model: Model, alone: dict[str, list[Tensor]], inputs: dict[str, Tensor]) -> bool:
    """Whether a sentence padded to a longer one has the same states as alone."""
    states, output = _states(model, _with_neighbour(model, inputs, longer=True))
    _require_own_states(model, states, output)
    padded = _farthest(alone, states)
    epsilon = _epsilon(alone[model.anatomy.reads.name][0])
    if padded <= min(_DEEP * epsilon, 0.1):
        return True
    states, _ = _states(model, _with_neighbour(model, inputs, longer=False))
    unpadded = _farthest(alone, states)
    if unpadded > _OTHERS * epsilon:
        raise UserError(
            f"What {_family(model)} computes for a sentence depends on the other sentences of its batch (its states "
            f"change by {unpadded:.1e}), so it cannot be measured. Analyse a model of another family."
        )
    return padded <= _NOISE * unpadded


def _with_neighbour(model: Model, inputs: dict[str, Tensor], longer: bool) -> dict[str, Tensor]:
    """The sentence in a batch with another one, which is longer or equally long."""
    batch = {}
    for name, ids in inputs.items():
        if name == "attention_mask":
            continue
        row, other = ids[0], ids[0].flip(0)
        batch[name] = torch.stack([row, other])
        if longer:
            batch[name] = nn.functional.pad(batch[name], (0, 3), value=model.pad_token_id)
            batch[name][1, -3:] = other[:3]
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["attention_mask"][0, inputs["input_ids"].shape[1] :] = 0
    return batch


def _states(model: Model, inputs: dict[str, Tensor]) -> tuple[dict[str, list[Tensor]], Any]:
    with tap(model, hidden=True) as seen:
        output = _run(model, inputs, output_hidden_states=True)
    return seen.hidden, output


def _farthest(alone: dict[str, list[Tensor]], batched: dict[str, list[Tensor]]) -> float:
    return max(
        _distance(found[0, : expected.shape[1]], expected[0])
        for stack in alone
        for expected, found in zip(alone[stack], batched[stack], strict=True)
    )


def _family(model: Model) -> str:
    return type(model.module).__name__
