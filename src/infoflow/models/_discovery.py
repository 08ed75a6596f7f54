"""Find a model's stacks, layers and heads by watching one tiny forward pass.

No table of families: what calls the attention function is an attention, the linear module that receives exactly its
output is the output projection, keys of the encoder's length mean cross-attention, and weights without a future mean
a causal stack. A model that never calls the function is refused here, because a tap on it would silently see nothing.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from infoflow.foundation import UserError

from ._anatomy import Anatomy, Attention, Layer, Stack
from ._attention import AttentionCall, listening
from ._own import AbstractOwnModel
from ._parameter_groups import parameter_groups
from ._projections import find_projections, output_projection_slices
from ._slices import Projection
from ._unreadable import machine_lacks

_SOURCE_LENGTH, _TARGET_LENGTH = 5, 4  # unequal, so that cross-attention shows


@dataclass(kw_only=True, slots=True, eq=False)
class _Call:
    """What the tiny forward pass showed of one attention call."""

    module: nn.Module
    num_queries: int
    num_keys: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    causal: bool
    context_BTD: Tensor
    value_BHSd: Tensor
    linear_outputs: dict[nn.Module, Tensor]  # latest outputs of linear modules before the call
    projection: nn.Module | None = None

    @property
    def cross(self) -> bool:
        return self.num_queries != self.num_keys


def discover(module: PreTrainedModel) -> Anatomy:
    """The anatomy of a model in evaluation mode; neither its weights nor its settings change.

    Raises:
        UserError: The model cannot run on token ids, never calls the attention function, calls it in some blocks only,
            or does something between its heads and the output projection.
    """
    if isinstance(module, AbstractOwnModel):
        return Anatomy(stacks=module.stacks(), parameter_groups=parameter_groups(module, module.stacks()))
    calls = _watch(module)
    names = {child: name for name, child in module.named_modules()}
    encoder = set(module.get_encoder().modules()) if is_sequence_to_sequence(module) else set()
    blocks = _blocks(module, calls, names)
    stacks = []
    for name in ("encoder", "decoder"):
        members = [call for call in calls if _stack_name(call, calls, encoder) == name]
        if members:
            stacks.append(_stack(module, name, members, blocks, names))
    _require_every_block(module, stacks, two=bool(encoder))
    return Anatomy(stacks=tuple(stacks), parameter_groups=parameter_groups(module, tuple(stacks)))


def is_sequence_to_sequence(module: PreTrainedModel) -> bool:
    return (
        bool(module.config.is_encoder_decoder) and "decoder_input_ids" in inspect.signature(module.forward).parameters
    )


def vocabulary_size(module: PreTrainedModel) -> int:
    """Rows of the input embedding."""
    try:
        weight = getattr(module.get_input_embeddings(), "weight", None)
    except NotImplementedError:  # transformers finds none
        weight = None
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise UserError(
            f"{type(module).__name__} embeds no token ids, so it is no text model that infoflow can analyse."
        )
    return weight.shape[0]


def tiny_inputs(module: PreTrainedModel) -> dict[str, Tensor]:
    """A few token ids (no padding among them, EOS last) as keywords of the model's forward pass."""
    size = vocabulary_size(module)
    pad, end = (getattr(module.config, name, None) for name in ("pad_token_id", "eos_token_id"))
    ids = [token for token in range(min(size, 2 * _SOURCE_LENGTH)) if token not in (pad, end)][-_SOURCE_LENGTH:]
    if isinstance(end, int) and 0 <= end < size and end != pad:
        ids[-1] = end  # a classifier may read its answer there, and may not run without
    input_ids = torch.tensor([ids], device=module.device)
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    if is_sequence_to_sequence(module):
        inputs["decoder_input_ids"] = input_ids[:, :_TARGET_LENGTH]
    return inputs


def _watch(module: PreTrainedModel) -> list[_Call]:
    calls: list[_Call] = []
    outputs: dict[nn.Module, Tensor] = {}
    training = {child: child.training for child in module.modules()}
    with ExitStack() as stack:
        stack.callback(lambda: [setattr(child, "training", mode) for child, mode in training.items()])
        module.eval()
        stack.enter_context(torch.no_grad())
        inputs = tiny_inputs(module)
        expected = _run(module, inputs)
        listeners = {child: _recorder(calls, outputs) for child in module.modules()}
        stack.enter_context(listening(module, listeners))
        stack.enter_context(_watching_linear_modules(module, calls, outputs))
        output = _run(module, inputs)
    if not calls:
        raise UserError(
            f"{type(module).__name__} never calls the attention function that Hugging Face looks up by name, so its "
            "attention can neither be read nor gated. DeBERTa-v2 and Longformer are known to compute attention "
            "themselves; analyse a model of another family, such as BERT, RoBERTa or ModernBERT."
        )
    _require_same_output(module, output, expected)
    _require_known_keys(module, calls, inputs)
    return calls


def _run(module: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """The logits, or whatever else comes first, of a forward pass.

    A head that predicts no tokens attends to nothing and is left out: BART's classifier wants a decoder input that is
    as long as the encoder's.
    """
    try:
        output = runs_alone(module)(**inputs)
    except Exception as error:
        if lacking := machine_lacks(error, type(module).__name__):
            raise lacking from error
        raise UserError(
            f"{type(module).__name__} failed in a forward pass on {inputs['input_ids'].shape[1]} token ids and nothing "
            f"else: {str(error).strip() or type(error).__name__}\nA model that needs more than text (images, sound) "
            "cannot be analysed; where it should run on text alone, its configuration does not fit."
        ) from error
    return output["logits"] if "logits" in output else output[0]


def runs_alone(module: PreTrainedModel) -> nn.Module:
    """The part that runs on token ids: without a head that predicts no tokens."""
    return module if module.get_output_embeddings() is not None else module.base_model


def _require_same_output(module: PreTrainedModel, output: Tensor, expected: Tensor) -> None:
    """A family may pass its attention more than the tap knows of (attention sinks): then the tap would be wrong."""
    tolerance = 1e-4 if output.dtype in (torch.float32, torch.float64) else 5e-2
    if bool(expected.isfinite().all()) and not (output - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"{type(module).__name__} computes something else under infoflow's attention function than under its own, "
            "so its attention has a part that infoflow does not know and cannot read."
        )


def _require_known_keys(module: PreTrainedModel, calls: list[_Call], inputs: dict[str, Tensor]) -> None:
    """An attention looks at its own stack's tokens or at the encoder's: not at both at once, nor at anything else."""
    encoder = inputs["input_ids"].shape[1] if is_sequence_to_sequence(module) else None
    for call in calls:
        if call.num_keys not in (call.num_queries, encoder):
            both = encoder is not None and call.num_keys == call.num_queries + encoder
            which = (
                "its own tokens and the encoder's in one softmax (self- and cross-attention merged)"
                if both
                else "something else than its tokens one by one (memory slots, a prefix, or a shortened sequence)"
            )
            raise UserError(
                f"An attention of {type(module).__name__} has {call.num_keys} keys for {call.num_queries} tokens: it "
                f"attends to {which}, so its weights are neither those of self- nor of cross-attention, which is all "
                "that infoflow knows. Analyse a model of another family."
            )


def _recorder(calls: list[_Call], outputs: dict[nn.Module, Tensor]) -> Callable[[AttentionCall], AttentionCall]:
    def record(call: AttentionCall) -> AttentionCall:
        calls.append(
            _Call(
                module=call.module,
                num_queries=call.query.shape[2],
                num_keys=call.key.shape[2],
                num_heads=call.query.shape[1],
                num_key_value_heads=call.num_key_value_heads,
                head_dim=call.value.shape[-1],
                causal=bool((call.weights.triu(1) == 0).all()),
                context_BTD=call.context().transpose(1, 2).flatten(2),
                value_BHSd=call.value,
                linear_outputs=dict(outputs),
            )
        )
        return call

    return record


def _match_projection(calls: list[_Call], child: nn.Module, value: Tensor) -> None:
    """The first linear module after an attention call that receives exactly its output projects it."""
    if not calls or calls[-1].projection is not None:
        return
    context_BTD = calls[-1].context_BTD
    if value.numel() != context_BTD.numel() or value.dtype != context_BTD.dtype:
        return
    # A damaged model's NaNs are equal too: measures say where they begin.
    if torch.allclose(value.reshape(context_BTD.shape), context_BTD, rtol=0, atol=0, equal_nan=True):
        calls[-1].projection = child


@contextmanager
def _watching_linear_modules(module: nn.Module, calls: list[_Call], outputs: dict[nn.Module, Tensor]) -> Iterator[None]:
    def before(child: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        _match_projection(calls, child, inputs[0])

    def after(child: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        outputs[child] = output

    linear = [child for child in module.modules() if isinstance(child, nn.Linear | Conv1D)]
    handles = [child.register_forward_pre_hook(before) for child in linear]
    handles += [child.register_forward_hook(after) for child in linear]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _stack_name(call: _Call, calls: list[_Call], encoder: set[nn.Module]) -> str:
    if encoder:
        return "encoder" if call.module in encoder else "decoder"
    return "decoder" if all(other.causal for other in calls if not other.cross) else "encoder"


def _blocks(module: nn.Module, calls: list[_Call], names: dict[nn.Module, str]) -> dict[nn.Module, str]:
    """The block of each attention module: the outermost element of a module list that holds no second of its kind.

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
    module: PreTrainedModel, name: str, calls: list[_Call], blocks: dict[nn.Module, str], names: dict[nn.Module, str]
) -> Stack:
    layers: list[tuple[str, dict[str, _Call]]] = []
    for call in calls:
        block, kind = blocks[call.module], "cross" if call.cross else "self"
        if not layers or layers[-1][0] != block or kind in layers[-1][1]:
            layers.append((block, {}))
        layers[-1][1][kind] = call
    return Stack(
        name=name,
        causal=all(call.causal for call in calls if not call.cross),
        width=_width(calls[0]),
        layers=tuple(
            Layer(
                index=index,
                block=block,
                attentions={
                    kind: _attention(module, call, stack=name, layer=index, kind=kind, names=names)
                    for kind, call in parts.items()
                },
            )
            for index, (block, parts) in enumerate(layers)
        ),
    )


def _attention(
    module: PreTrainedModel, call: _Call, *, stack: str, layer: int, kind: str, names: dict[nn.Module, str]
) -> Attention:
    if call.projection is None:
        raise UserError(
            f"{type(module).__name__} changes its heads' outputs before they reach an output projection "
            f"({names[call.module]}), so they cannot be read or gated one by one."
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
    )


def _holds_the_values(module: nn.Module, call: _Call, value: Projection) -> bool:
    """Whether a fused layout is the one its name suggests: its value slices gave the values that attention used."""
    fused = module.get_submodule(value.weight.parameter.removesuffix(".weight"))
    output_BSE = call.linear_outputs.get(fused)
    if output_BSE is None or len(value.weight.indices()) == output_BSE.shape[-1]:
        return True
    if len(value.weight.indices()) != value.num_heads * call.head_dim:
        return False
    values_BSGd = output_BSE[..., value.weight.indices()].unflatten(-1, (value.num_heads, call.head_dim))
    repeated = values_BSGd.transpose(1, 2).repeat_interleave(call.num_heads // max(1, value.num_heads), dim=1)
    return repeated.shape == call.value_BHSd.shape and torch.equal(repeated, call.value_BHSd)


def _width(call: _Call) -> int:
    projection = call.projection
    if isinstance(projection, Conv1D):
        return projection.nf
    return projection.out_features if isinstance(projection, nn.Linear) else call.context_BTD.shape[-1]


def _require_every_block(module: nn.Module, stacks: list[Stack], two: bool) -> None:
    """A hybrid model has blocks without attention: its layers would be numbered wrongly."""
    if two and len(stacks) < 2:
        raise UserError(
            f"The {'encoder' if stacks[0].name == 'decoder' else 'decoder'} of {type(module).__name__} never calls the "
            "attention function that Hugging Face looks up by name, so half of the model could not be read."
        )
    seen = {layer.block for stack in stacks for layer in stack.layers}
    for parent in {block.rpartition(".")[0] for block in seen}:
        silent = [name for name, _ in module.get_submodule(parent).named_children() if f"{parent}.{name}" not in seen]
        if silent:
            raise UserError(
                f"{type(module).__name__} has blocks that never call the attention function ({parent}: "
                f"{', '.join(silent)}), as hybrid and recurrent models do. infoflow analyses models whose every block "
                "attends."
            )
