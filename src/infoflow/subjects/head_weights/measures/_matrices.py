"""The matrices of every head of self-attention, with the gain of the norm before them folded in."""

# D width, d head width, V vocabulary, T position; states are rows: x W

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import (
    Attention,
    Model,
    ParameterSlice,
    Projection,
    Stack,
    model_inputs,
    tap,
    tiny_inputs,
    weight_of,
)
from infoflow.models._first_pass import output_embeddings

_SMALL = 1e-4  # states whose relative spread over positions is below this do not depend on positions
_TOKENS = 32  # number of tokens over which the effect of a position on the embeddings is averaged


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeadMatrices:
    """One head: its scores are (x Q)(y K)ᵀ and it writes y V O, for states x and y before the folded norm."""

    layer: int
    head: int
    query: Float[Tensor, "D d"]
    key: Float[Tensor, "D d"]
    value: Float[Tensor, "D e"]
    output: Float[Tensor, "e D"]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A norm without its division: `x` becomes `(x − mean(x)) · gain`, or `x · gain` if it does not centre."""

    gain: Float[Tensor, " D"]
    centres: bool

    @classmethod
    def of(cls, norm: nn.Module, like: Tensor) -> "Fold":
        """The fold of any norm module, found by its effect on x, −x and x + 1."""
        width = like.shape[-1]
        x = torch.ones(1, 1, width, dtype=like.dtype, device=like.device)
        x[..., 1::2] = -1
        x = x - x.mean()
        gain = (norm(x) - norm(-x))[0, 0] / (2 * x[0, 0])
        moved = norm(x + 1) - norm(x)
        return cls(gain.double().cpu(), bool(moved.norm() < 0.1 * norm(x).norm()))

    def before(self, weight: Float[Tensor, "D out"]) -> Float[Tensor, "D out"]:
        """The matrix that does to states before the norm what `weight` does to states after it."""
        weight = self.gain[:, None] * weight
        return weight - weight.mean(0) if self.centres else weight


def head_matrices(model: Model, stack: Stack) -> Iterator[HeadMatrices]:
    """The heads of a stack's self-attention, in order.

    Raises:
        UserError: The model stores its projections in a layout that this library does not know.
    """
    folds = norms_before(model)
    parameters = dict(model.module.named_parameters())
    for layer in stack.layers:
        if "self" not in layer.attentions:
            continue
        attention = layer.attentions["self"]
        query, key, value, output = _projections(model, attention)
        fold = folds.get(query.weight.parameter)
        for head in range(attention.num_heads):
            group = head // attention.group_size
            read = [
                _matrix(parameters, projection.head(number)[0], along=1)
                for projection, number in ((query, head), (key, group), (value, group))
            ]
            written = _matrix(parameters, output.head(head)[0], along=0)
            if fold is not None:
                read = [fold.before(weight) for weight in read]
                written = written - written.mean(1, keepdim=True) if fold.centres else written
            yield HeadMatrices(layer=layer.index, head=head, query=read[0], key=read[1], value=read[2], output=written)


def _projections(model: Model, attention: Attention) -> tuple[Projection, Projection, Projection, Projection]:
    found = attention.query, attention.key, attention.value, attention.output
    if any(one is None for one in found):
        raise UserError(unknown_layout(model) or "")
    return found  # type: ignore[return-value]


def unknown_layout(model: Model) -> str | None:
    """The reason why the matrices of the heads cannot be read, or None."""
    parameters = dict(model.module.named_parameters())
    for attention in model.anatomy.attentions():
        for projection in (attention.query, attention.key, attention.value, attention.output):
            if projection is None:
                return "its queries, keys and values are not plain projections, so its heads have no such matrices"
            weight = parameters.get(projection.weight.parameter)
            in_memory = weight is not None and not weight.is_meta
            if not in_memory or not weight.is_floating_point() or hasattr(weight, "__tensor_flatten__"):
                return "the matrices of its heads are quantised or not in memory; load it without quantisation"
    return None


def _matrix(parameters: dict[str, Tensor], part: ParameterSlice, along: int) -> Float[Tensor, "rows columns"]:
    """A head's part of a parameter, with the head's dimensions as columns (`along` 1) or rows (0)."""
    weight = part.take(parameters[part.parameter].detach()).double().cpu()
    return weight.T if part.dim == 1 - along else weight


# Norms whose output goes straight into a projection, found in a forward pass.


def norms_before(model: Model) -> dict[str, Fold]:
    """For each weight by name, the norm in its block whose output it reads; "" is the output matrix of logits."""
    seen: dict[int, nn.Module] = {}
    folds: dict[str, Fold] = {}
    kept: list[Tensor] = []
    head = output_embeddings(model.module)

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            kept.append(output)
            seen[output.data_ptr()] = module

    def enter(name: str) -> Any:
        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and args[0].data_ptr() in seen:
                folds[name] = Fold.of(seen[args[0].data_ptr()], args[0])

        return before

    def forget(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen.clear()  # the last norm of the block below (post-norm) is part of the state

    with ExitStack() as hooks, torch.inference_mode():
        for block in {layer.block for stack in model.anatomy.stacks for layer in stack.layers}:
            hooks.callback(model.module.get_submodule(block).register_forward_pre_hook(forget).remove)
        for module in model.module.modules():
            if "Norm" in type(module).__name__:
                hooks.callback(module.register_forward_hook(leave).remove)
        for attention in model.anatomy.attentions():
            if attention.query is not None:
                name = attention.query.weight.parameter
                reader = model.module.get_submodule(name.rpartition(".")[0])
                hooks.callback(reader.register_forward_pre_hook(enter(name)).remove)
        if head is not None:
            hooks.callback(head.register_forward_pre_hook(enter("")).remove)
        model.module(**tiny_inputs(model.module))
    return folds


# Token and position space.


def token_map(model: Model, stack: Stack) -> Float[Tensor, "D D"] | None:
    """Output matrix times embeddings, $U^\\top E$: what one token adds to the logits of another; None without logits.

    Only the predicting stack has it. From a masked LM's output head, only the last norm and matrix count.
    """
    head = output_embeddings(model.module)
    if stack is not model.anatomy.predicts or head is None or model.task not in ("causal-lm", "masked-lm", "seq2seq"):
        return None
    two = len(model.anatomy.stacks) > 1
    embeddings = (model.module.get_decoder() if two else model.module).get_input_embeddings()
    written, read = weight_of(embeddings).double().cpu(), weight_of(head).double().cpu()
    if written.shape != read.shape or written.shape[1] != stack.width:
        return None
    fold = norms_before(model).get("")
    read = read - read.mean(0)  # what is added to all logits alike changes nothing
    return (read.T if fold is None else fold.before(read.T)) @ written


def position_states(model: Model, stack: Stack, length: int) -> Float[Tensor, "T D"] | None:
    """What positions add to the states that enter the first block, minus their mean; None if they add nothing."""
    limit = model.max_tokens if stack is model.anatomy.reads else model.max_target_tokens
    length = length if limit is None else min(length, limit)
    size = model.module.get_input_embeddings().weight.shape[0]
    tokens = torch.arange(0, size, max(1, size // _TOKENS))[:_TOKENS]
    tokens = tokens[tokens != model.pad_token_id]
    ids = tokens[:, None].expand(-1, length).contiguous()
    two = len(model.anatomy.stacks) > 1
    with torch.inference_mode(), tap(model, hidden=True) as seen:
        model.module(**model_inputs(model, ids, decoder_input_ids=ids if two else None))
    states = seen.hidden[stack.name][0].double().cpu()
    mean = states.mean(0)
    found = mean - mean.mean(0)
    return found if found.norm() > _SMALL * mean.norm() else None
