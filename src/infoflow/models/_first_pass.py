"""One tiny observed forward pass: which modules attend, and which linear module receives exactly their output."""

# B batch, H query head, G key/value head, T query token, S key token, d head width

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import Conv1D, PreTrainedModel
from infoflow.foundation import UserError

from ._attention import listening
from ._attention_call import AttentionCall
from ._hub import machine_lacks
from ._modules import evaluating
from ._own_attention import OwnCall, watching_own_attention
from ._placed import input_device

_SOURCE_LENGTH, _TARGET_LENGTH = 5, 4  # unequal, to recognise cross-attention


@dataclass(kw_only=True, slots=True, eq=False)
class WatchedCall:
    """What was observed about one attention call in the tiny forward pass."""

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
    gated: bool = False  # the projection reads the output times a factor that does not depend on it
    candidate: nn.Module | None = None  # the attention's first linear module that reads tensors of the output's width
    own: bool = False  # computed by the family's own code
    trouble: str | None = None  # why it is not a readable attention, as the end of a sentence

    @property
    def cross(self) -> bool:
        return self.num_queries != self.num_keys


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
            f"{type(module).__name__} embeds no token ids, so it is not a text model that infoflow can analyse."
        )
    return weight.shape[0]


def tiny_inputs(module: PreTrainedModel) -> dict[str, Tensor]:
    """A few token ids (no padding, EOS last) as arguments of the model's forward pass."""
    size = vocabulary_size(module)
    pad, end = (getattr(module.config, name, None) for name in ("pad_token_id", "eos_token_id"))
    ids = [token for token in range(min(size, 2 * _SOURCE_LENGTH)) if token not in (pad, end)][-_SOURCE_LENGTH:]
    if isinstance(end, int) and 0 <= end < size and end != pad:
        ids[-1] = end  # a classifier may predict at this token, or require it
    input_ids = torch.tensor([ids], device=input_device(module))
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    if is_sequence_to_sequence(module):
        inputs["decoder_input_ids"] = input_ids[:, :_TARGET_LENGTH]
    return inputs


def watch(module: PreTrainedModel, callers: set[nn.Module] | None = None) -> list[WatchedCall]:
    """The calls of the attention function in one tiny forward pass, in order.

    With `callers`, the modules that call it, attention that other modules compute in their own code is included.
    """
    calls: list[WatchedCall] = []
    outputs: dict[nn.Module, Tensor] = {}
    with ExitStack() as stack:
        stack.enter_context(evaluating(module))
        inputs = tiny_inputs(module)
        expected = run_tiny(module, inputs)
        listeners = {child: _recorder(calls, outputs) for child in module.modules()}
        stack.enter_context(listening(module, listeners))
        for child in module.modules():
            if isinstance(child, nn.Linear | Conv1D):
                stack.enter_context(child.register_forward_pre_hook(partial(_match_projection, calls)))
                stack.enter_context(child.register_forward_hook(lambda one, _, output: outputs.update({one: output})))
        if callers is not None:
            show = _own_recorder(calls, outputs, callers)
            stack.enter_context(watching_own_attention(dict.fromkeys(module.modules()), show))
        output = run_tiny(module, inputs)
    if calls:
        _require_same_output(module, output, expected)
        _require_known_keys(module, calls, inputs)
        _find_gated_projections(module, calls, inputs)
    return calls


def _find_gated_projections(module: PreTrainedModel, calls: list[WatchedCall], inputs: dict[str, Tensor]) -> None:
    """Find output projections behind a gate (Qwen3-Next), whose input is linear in each head's output.

    One attention is tried for each class of attention.
    """
    tried: dict[type[nn.Module], bool] = {}
    for call in calls:
        if call.projection is not None or call.own or call.candidate is None:
            continue
        family = type(call.module)
        if family not in tried:
            tried[family] = _is_linear_by_head(module, call, call.candidate, inputs)
        if tried[family]:
            call.projection, call.gated = call.candidate, True


def _is_linear_by_head(
    module: PreTrainedModel, call: WatchedCall, candidate: nn.Module, inputs: dict[str, Tensor]
) -> bool:
    r"""Whether $g(f \odot x + y) = f \odot g(x) + g(y)$ for factors f of the heads and random outputs x and y."""
    generator = torch.Generator().manual_seed(0)
    heads, width = call.num_heads, call.head_dim
    shape = (call.context_BTD.shape[0], heads, call.num_queries, width)
    x, y = (torch.randn(shape, generator=generator).to(call.context_BTD) for _ in "xy")
    factors = torch.linspace(-1.5, 2, heads).to(x)[:, None, None]
    found = []
    for context in (x, y, factors * x + y):
        read: list[Tensor] = []
        with ExitStack() as stack:
            stack.enter_context(evaluating(module))
            edit = {call.module: lambda one, context=context: one.edited(context=context)}
            stack.enter_context(listening(module, edit))
            stack.enter_context(candidate.register_forward_pre_hook(lambda _, args, read=read: read.append(args[0])))
            run_tiny(module, inputs)
        found.append(read[0].reshape(shape[0], call.num_queries, heads, width).transpose(1, 2).double())
    expected = factors.double() * found[0] + found[1]
    return bool((found[2] - expected).norm() <= 1e-3 * expected.norm()) and bool(expected.norm() > 0)


def run_tiny(module: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """The logits, or the first output, of a forward pass.

    A head that predicts no tokens is left out: BART's classifier needs a decoder input as long as the encoder's.
    """
    try:
        output = runs_alone(module)(**inputs)
    except Exception as error:
        if lacking := machine_lacks(error, type(module).__name__):
            raise lacking from error
        raise UserError(
            f"{type(module).__name__} failed in a forward pass on {inputs['input_ids'].shape[1]} token ids alone: "
            f"{str(error).strip() or type(error).__name__}\nA model that needs more than text (images, sound) "
            "cannot be analysed; if it should run on text alone, its configuration is wrong."
        ) from error
    return logits_or_first(output)


def logits_or_first(output: Any) -> Tensor:
    """The logits of a model's output; its first entry if there are none."""
    return output["logits"] if "logits" in output else output[0]


def output_embeddings(module: PreTrainedModel) -> nn.Module | None:
    """The output matrix of token logits; a few families have it as `lm_head` without exposing it (CLVP)."""
    head = module.get_output_embeddings()
    return head if head is not None else dict(module.named_children()).get("lm_head")


def runs_alone(module: PreTrainedModel) -> nn.Module:
    """The part that runs on token ids: the base model if the head does not predict tokens."""
    return module if output_embeddings(module) is not None else module.base_model


def _require_same_output(module: PreTrainedModel, output: Tensor, expected: Tensor) -> None:
    """Check that the tap reproduces the output, so that it ignores no attention argument (such as sinks)."""
    tolerance = 1e-4 if output.dtype in (torch.float32, torch.float64) else 5e-2
    if bool(expected.isfinite().all()) and not (output - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"{type(module).__name__} does not compute the same with infoflow's attention function as with its own, "
            "so part of its attention is unknown to infoflow."
        )


def _require_known_keys(module: PreTrainedModel, calls: list[WatchedCall], inputs: dict[str, Tensor]) -> None:
    """Check that an attention's keys are the tokens of its own stack or of the encoder, not both or others."""
    encoder = inputs["input_ids"].shape[1] if is_sequence_to_sequence(module) else None
    lengths = {ids.shape[1] for ids in inputs.values()}
    for call in calls:
        if call.own and call.num_queries not in lengths:
            raise UserError(
                f"An attention module of {type(module).__name__} has {call.num_queries} queries for "
                f"{inputs['input_ids'].shape[1]} tokens: it adds tokens, shortens the text or splits it into "
                "blocks, so its weights are not between the text's tokens. Analyse a model of another family."
            )
        if call.num_keys not in (call.num_queries, encoder):
            both = encoder is not None and call.num_keys == call.num_queries + encoder
            which = (
                "its own tokens and the encoder's in one softmax (self- and cross-attention merged)"
                if both
                else "inputs other than its single tokens (memory slots, a prefix, or a shortened sequence)"
            )
            raise UserError(
                f"An attention module of {type(module).__name__} has {call.num_keys} keys for {call.num_queries} "
                f"tokens: it attends to {which}, so its weights are neither self- nor cross-attention, the only kinds "
                "that infoflow supports. Analyse a model of another family."
            )


def _watched(
    module: nn.Module, weights: Tensor, value: Tensor, context: Tensor, groups: int, outputs: dict[nn.Module, Tensor]
) -> WatchedCall:
    """What weights (B, H, T, S), values and heads' outputs show; `groups` heads have their own keys and values."""
    return WatchedCall(
        module=module,
        num_queries=weights.shape[2],
        num_keys=weights.shape[3],
        num_heads=weights.shape[1],
        num_key_value_heads=groups,
        head_dim=value.shape[-1],
        causal=bool((weights.triu(1) == 0).all()),
        context_BTD=context.transpose(1, 2).flatten(2),
        value_BHSd=value,
        linear_outputs=dict(outputs),
    )


def _recorder(calls: list[WatchedCall], outputs: dict[nn.Module, Tensor]) -> Callable[[AttentionCall], AttentionCall]:
    def record(call: AttentionCall) -> AttentionCall:
        groups = call.num_key_value_heads
        calls.append(_watched(call.module, call.weights, call.value, call.context(), groups, outputs))
        return call

    return record


def _own_recorder(
    calls: list[WatchedCall], outputs: dict[nn.Module, Tensor], callers: set[nn.Module]
) -> Callable[[OwnCall], None]:
    def record(seen: OwnCall) -> None:
        if seen.module in callers:
            return  # it uses infoflow's own attention function
        last = calls[-1] if calls else None
        if last is not None and last.module is seen.module and last.projection is None:
            last.trouble = "uses several softmaxes in one attention (blocks, bands or streams of tokens)"
            return
        groups, weights = seen.value.shape[1], seen.weights.to(seen.mixed.dtype)
        value = seen.value.repeat_interleave(weights.shape[1] // groups, dim=1)
        call = _watched(seen.module, seen.weights, value, seen.context, groups, outputs)
        call.own = True
        if not torch.allclose(seen.mixed, weights, rtol=1e-4, atol=1e-6, equal_nan=True):
            call.trouble = "changes its attention weights between the softmax and the product with the values"
        calls.append(call)

    return record


def _match_projection(calls: list[WatchedCall], child: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Find the first linear module that receives exactly an attention call's output: its output projection."""
    value = inputs[0]
    if not calls or calls[-1].projection is not None:
        return
    context_BTD = calls[-1].context_BTD
    if value.numel() != context_BTD.numel() or value.dtype != context_BTD.dtype:
        return
    if calls[-1].candidate is None and any(child is one for one in calls[-1].module.modules()):
        calls[-1].candidate = child
    # NaNs of a damaged model count as equal, since measures report where NaNs begin.
    if torch.allclose(value.reshape(context_BTD.shape), context_BTD, rtol=0, atol=0, equal_nan=True):
        calls[-1].projection = child
