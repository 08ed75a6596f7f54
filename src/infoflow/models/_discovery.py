"""Find a model's stacks, layers and heads by observing one tiny forward pass.

There is no table of families. A module that calls the attention function, or else multiplies a softmax by values in its
own code, is an attention module; the linear module that receives exactly its output is the output projection; keys of
the encoder's length mean cross-attention; and a stack without weights on later tokens is causal. Other blocks in the
same list (hybrid models) are layers without heads. If heads cannot be read, blocks are found by the states that they
pass on.
"""

# B sentence, H head, T query token, S key token, d head width, D model width

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import Conv1D, PreTrainedModel
from infoflow.foundation import UserError

from ._anatomy import Anatomy, Attention, Layer, OwnCode, Projection, Stack
from ._attention import listening
from ._first_pass import WatchedCall, is_sequence_to_sequence, run_tiny, tiny_inputs, watch
from ._modules import evaluating, hooked
from ._own_attention import OwnCall, watching_own_attention
from ._own_models import AbstractOwnModel
from ._parameters import find_projections, out_features, output_projection_slices, parameter_groups

_OTHER_FAMILY = "Analyse a model of another family."
_MASKED = -1000.0  # lower scores belong to hidden keys
_SLACK = 1e-4


def discover(module: PreTrainedModel) -> Anatomy:
    """The anatomy of a model in evaluation mode; its weights and settings are unchanged."""
    if isinstance(module, AbstractOwnModel):
        return Anatomy(stacks=module.stacks(), parameter_groups=parameter_groups(module, module.stacks()))
    calls = watch(module)
    # Not before, because BigBird's first pass on a short sentence puts other attention modules into its blocks.
    names = {child: name for name, child in module.named_modules()}
    encoder = set(module.get_encoder().modules()) if is_sequence_to_sequence(module) else set()
    if not _is_complete(module, calls, encoder, names):
        calls = watch(module, callers={call.module for call in calls})
    if not calls:
        raise UserError(
            f"{type(module).__name__} never calls Hugging Face's attention function, nor does "
            "its own code multiply a softmax over tokens by values, so it has no attention that can be read or gated: "
            "it mixes tokens differently (by a Fourier transform, a recurrence or samples), or in blocks and bands. "
            "Analyse a model of another family, such as BERT, RoBERTa or ModernBERT."
        )
    scaling = scalings(module, [call.module for call in calls if call.own])
    blocks = _blocks(module, calls, names)
    stacks = []
    for name in ("encoder", "decoder"):
        members = [call for call in calls if _stack_name(call, calls, encoder) == name]
        if members:
            stacks.append(_stack(module, name, members, blocks, names, scaling))
    if encoder and len(stacks) < 2:
        raise UserError(
            f"The {'encoder' if stacks[0].name == 'decoder' else 'decoder'} of {type(module).__name__} never calls "
            "Hugging Face's attention function, nor multiplies one softmax over its tokens by "
            "values (it may attend in blocks or bands), so half of the model could not be read."
        )
    return Anatomy(stacks=tuple(stacks), parameter_groups=parameter_groups(module, tuple(stacks)))


def _is_complete(
    module: nn.Module, calls: list[WatchedCall], encoder: set[nn.Module], names: dict[nn.Module, str]
) -> bool:
    """Whether every block of every stack has attention."""
    if not calls or (encoder and len({call.module in encoder for call in calls}) < 2):
        return False
    blocks = set(_blocks(module, calls, names).values())
    lists = {block.rpartition(".")[0] for block in blocks}
    return all(f"{one}.{name}" in blocks for one in lists for name, _ in module.get_submodule(one).named_children())


def _stack_name(call: WatchedCall, calls: list[WatchedCall], encoder: set[nn.Module]) -> str:
    if encoder:
        return "encoder" if call.module in encoder else "decoder"
    return "decoder" if all(other.causal for other in calls if not other.cross) else "encoder"


def _blocks(module: nn.Module, calls: list[WatchedCall], names: dict[nn.Module, str]) -> dict[nn.Module, str]:
    """The block of each attention module: the outermost module-list element with only one attention of each kind.

    Outermost, because T5 keeps the parts of a block in an inner list.
    """
    kinds = {call.module: call.cross for call in calls}
    lists = {name for name, child in module.named_modules() if isinstance(child, nn.ModuleList)}
    blocks = {}
    for attention in kinds:
        path = names[attention].split(".")
        elements = [".".join(path[: depth + 1]) for depth in range(1, len(path)) if ".".join(path[:depth]) in lists]
        inside = {
            element: [kinds[other] for other in kinds if names[other].startswith(element + ".")] for element in elements
        }
        single = [element for element in elements if len(inside[element]) == len(set(inside[element]))]
        if not single:
            raise UserError(
                f"{type(module).__name__} does not keep its blocks in a list: {names[attention]} belongs to no layer."
            )
        blocks[attention] = single[0]
    return blocks


def _stack(
    module: PreTrainedModel,
    name: str,
    calls: list[WatchedCall],
    blocks: dict[nn.Module, str],
    names: dict[nn.Module, str],
    scaling: dict[nn.Module, float | None],
) -> Stack:
    layers: list[tuple[str, dict[str, WatchedCall]]] = []
    for call in calls:
        block, kind = blocks[call.module], "cross" if call.cross else "self"
        if not layers or layers[-1][0] != block or kind in layers[-1][1]:
            layers.append((block, {}))
        layers[-1][1][kind] = call
    layers = _with_silent_blocks(module, layers)
    return Stack(
        name=name,
        causal=all(call.causal for call in calls if not call.cross),
        width=calls[0].context_BTD.shape[-1] if calls[0].projection is None else out_features(calls[0].projection),
        layers=tuple(
            Layer(
                index=index,
                block=block,
                attentions={
                    kind: _attention(module, call, stack=name, layer=index, kind=kind, names=names, scaling=scaling)
                    for kind, call in parts.items()
                },
            )
            for index, (block, parts) in enumerate(layers)
        ),
    )


def _with_silent_blocks(
    module: nn.Module, layers: list[tuple[str, dict[str, WatchedCall]]]
) -> list[tuple[str, dict[str, WatchedCall]]]:
    """The layers, with blocks of the same list that have no attention, as in hybrid models (Jamba, Qwen3-Next)."""
    found = dict(layers)
    parents = {block.rpartition(".")[0] for block in found}
    if len(parents) > 1 or len(found) < len(layers):  # several lists, or blocks that run more than once
        return layers
    (parent,) = parents
    every = [f"{parent}.{name}" for name, _ in module.get_submodule(parent).named_children()]
    return [(block, found.get(block, {})) for block in every]


def _attention(
    module: PreTrainedModel,
    call: WatchedCall,
    *,
    stack: str,
    layer: int,
    kind: str,
    names: dict[nn.Module, str],
    scaling: dict[nn.Module, float | None],
) -> Attention:
    if call.trouble is not None:
        raise UserError(f"{type(module).__name__} {call.trouble} ({names[call.module]}). {_OTHER_FAMILY}")
    if call.projection is None and call.own:
        raise UserError(
            f"{type(module).__name__} computes attention in its own code, and no linear output projection receives its "
            f"heads' outputs unchanged ({names[call.module]}): it adds to them, or mixes heads in a non-linear module. "
            f"So heads cannot be read or gated individually. {_OTHER_FAMILY}"
        )
    if call.projection is None:
        raise UserError(
            f"{type(module).__name__} changes its heads' outputs before they reach an output projection "
            f"({names[call.module]}), so they cannot be read or gated individually."
        )
    heads = (call.num_heads, call.num_key_value_heads, call.num_key_value_heads)
    query, key, value = find_projections(call.module, names[call.module], heads)
    if value is not None and not _holds_the_values(module, call, value):
        query = key = value = None
    return Attention(
        kind=kind,
        stack=stack,
        layer=layer,
        module=names[call.module],
        num_heads=call.num_heads,
        num_key_value_heads=call.num_key_value_heads,
        head_dim=call.head_dim,
        output_projection=names[call.projection],
        transposed=isinstance(call.projection, Conv1D),
        query=query,
        key=key,
        value=value,
        output=output_projection_slices(module, names[call.projection], call.num_heads),
        own=OwnCode(num_heads=call.num_heads, scaling=scaling[call.module]) if call.own else None,
        gated=call.gated,
    )


def _holds_the_values(module: nn.Module, call: WatchedCall, value: Projection) -> bool:
    """Whether a fused projection is laid out as assumed: its value slices produced the values that attention used."""
    fused = module.get_submodule(value.weight.parameter.removesuffix(".weight"))
    output_BSE = call.linear_outputs.get(fused)
    if output_BSE is None or len(value.weight.indices()) == output_BSE.shape[-1]:
        return True
    if len(value.weight.indices()) != value.num_heads * call.head_dim:
        return False
    values_BSGd = output_BSE[..., value.weight.indices()].unflatten(-1, (value.num_heads, call.head_dim))
    repeated = values_BSGd.transpose(1, 2).repeat_interleave(call.num_heads // max(1, value.num_heads), dim=1)
    return repeated.shape == call.value_BHSd.shape and torch.equal(repeated, call.value_BHSd)


def scalings(module: PreTrainedModel, attentions: Sequence[nn.Module]) -> dict[nn.Module, float | None]:
    r"""The factor s of each attention whose scores are $s\, q k^\top + c$, c the same for every sentence.

    None if there is no such factor: DeBERTa's scores also contain products of content and position, which differ
    between sentences. s comes from two sentences of equal length, whose scores differ by $s\,(q k^\top - q' k'^\top)$.
    """
    if not attentions:
        return {}
    differences: dict[nn.Module, list[tuple[Tensor, Tensor] | None]] = {one: [] for one in attentions}
    passes: list[list[OwnCall]] = []
    inputs = tiny_inputs(module)
    with evaluating(module), listening(module, {}):  # Falcon's own code would otherwise call SDPA
        for ids in (inputs, {name: one.flip(1) for name, one in inputs.items()}):
            calls: list[OwnCall] = []
            with watching_own_attention(dict.fromkeys(attentions), calls.append):
                run_tiny(module, ids)
            passes.append(calls)
    for first, second in zip(*passes, strict=True):
        differences[first.module].append(_difference(first, second))
    return {one: _scaling(found) for one, found in differences.items()}


def _difference(first: OwnCall, second: OwnCall) -> tuple[Tensor, Tensor] | None:
    """Differences of scores and of products between the two sentences, where no key is hidden."""
    if first.query is None or first.key is None or second.query is None or second.key is None:
        return None
    seen = (first.scores > _MASKED) & (second.scores > _MASKED)
    products = first.query @ first.key.mT - second.query @ second.key.mT  # one key head serves all, or each has its own
    return (first.scores - second.scores)[seen], products[seen]


def _scaling(found: Sequence[tuple[Tensor, Tensor] | None]) -> float | None:
    parts = [one for one in found if one is not None]
    if len(parts) < len(found) or not parts:
        return None
    scores, products = (torch.cat(side).double() for side in zip(*parts, strict=True))
    scaling = (scores @ products) / (products @ products)
    exact = (scores - scaling * products).norm() <= _SLACK * scores.norm()
    return float(scaling) if bool(exact) else None


def stacks_of_states(module: PreTrainedModel) -> tuple[Stack, ...] | None:
    """Stacks without attention: lists of blocks, each of which reads the output of the previous one.

    None if there is no such list, or one stack of an encoder–decoder model has none.
    """
    parts = {"decoder": module}
    if is_sequence_to_sequence(module):
        parts = {"encoder": module.get_encoder(), "decoder": module}
    runs, causal = _block_runs(module)
    stacks, taken = [], ""
    for name, part in parts.items():
        inside = {child for child in part.modules() if isinstance(child, nn.ModuleList)}
        chains = (path for path in _chains(module, runs) if module.get_submodule(path) in inside)
        found = next((path for path in chains if not (taken and path.startswith(taken))), None)
        if found is None:
            return None
        taken = found
        names = [f"{found}.{index}" for index, _ in module.get_submodule(found).named_children()]
        layers = tuple(
            Layer(index=index, block=block, attentions={}, other_paths=True) for index, block in enumerate(names)
        )
        own = name if len(parts) > 1 else ("decoder" if causal else "encoder")
        width = runs[module.get_submodule(names[0])][0][1].shape[-1]
        stacks.append(Stack(name=own, causal=own == "decoder", width=width, layers=layers))
    return tuple(stacks)


Runs = dict[nn.Module, list[tuple[Tensor, Tensor]]]
"""What each block read and returned, at each of its runs."""


def _block_runs(module: PreTrainedModel) -> tuple[Runs, bool]:
    """The runs of one tiny pass, and whether a change of the last token leaves the output for all others unchanged."""
    runs: Runs = {}

    def after(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        read = args[0] if args else kwargs.get("hidden_states")
        returned = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) and output else None
        if isinstance(read, Tensor) and isinstance(returned, Tensor) and read.dim() == returned.dim() in (3, 4):
            runs.setdefault(block, []).append((read, returned))

    inputs = tiny_inputs(module)
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][:, -1] = inputs["input_ids"][:, 0]
    blocks = [child for one in module.modules() if isinstance(one, nn.ModuleList) for child in one.children()]
    with evaluating(module):
        other = run_tiny(module, changed)
        with hooked(block.register_forward_hook(after, with_kwargs=True) for block in blocks):
            output = run_tiny(module, inputs)
    causal = output.dim() == 3 and torch.allclose(output[:, :-1], other[:, :-1], rtol=1e-4, atol=1e-5)
    return runs, causal


def _chains(module: nn.Module, runs: Runs) -> Iterator[str]:
    """Names of lists whose blocks run once each, in order: outer lists first, single blocks last."""
    lists = [
        (len(child) == 1, name.count("."), -len(child), name)
        for name, child in module.named_modules()
        if isinstance(child, nn.ModuleList) and len(child)
    ]
    for *_, name in sorted(lists):
        ran = [runs.get(block, []) for block in module.get_submodule(name).children()]
        if all(len(one) == 1 for one in ran) and all(
            first[0][1].shape == second[0][0].shape and torch.equal(first[0][1], second[0][0])
            for first, second in pairwise(ran)
        ):
            yield name
