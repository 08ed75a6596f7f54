"""Every parameter of a model in exactly one group, by its full path."""

from dataclasses import replace

from torch import nn
from transformers import PreTrainedModel

from ._anatomy import Attention, ParameterGroup, Stack
from ._slices import ParameterSlice

_POSITIONS = ("position", "wpe", "relative_attention_bias")
_SEGMENTS = ("token_type", "segment")
_MLP_OUT = ("fc2", "lin2", "down_proj", "wo", "Wo", "c_proj", "ffn_output", "dense_4h_to_h", "w2")
_ADAPTERS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
_HEADS = ("cls", "lm_head", "project_out", "score", "classifier")


def parameter_groups(model: PreTrainedModel, stacks: tuple[Stack, ...]) -> tuple[ParameterGroup, ...]:
    """Entries in the order of `model.named_parameters()`; a tied parameter appears once, under its first name.

    Attention projections come from the discovered slices; everything else is classified by its path: inside or outside
    a block, a norm by its class, a table by its name. Unclassified parameters are in the group "other".
    """
    projections = _projection_entries(stacks, {name for name, _ in model.named_parameters()})
    heads, tables = _head_modules(model), _embedding_names(model)
    groups = []
    for name, parameter in model.named_parameters():
        entries = projections.get(name)
        if entries is None:
            path = tables.get(parameter, name)
            component, layer, kind = _classify(model, path, stacks, heads)
            stack = _stack_of(path, component, stacks)
            entries = [(component, stack, layer, kind, ParameterSlice(parameter=name))]
        for component, stack, layer, kind, part in entries:
            groups.append(
                ParameterGroup(
                    component=component,
                    stack=stack,
                    layer=layer,
                    kind=kind,
                    slice=part,
                    size=part.take(parameter).numel(),
                )
            )
    return tuple(groups)


def _embedding_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """The name of each embedding table: a tied one may be listed under its output matrix's name (XLM-R)."""
    names: dict[nn.Parameter, str] = {}
    for name, child in model.named_modules():
        if isinstance(child, nn.Embedding):
            names.setdefault(child.weight, f"{name}.weight")
    return names


Entry = tuple[str, str | None, int | None, str | None, ParameterSlice]


def _projection_entries(stacks: tuple[Stack, ...], names: set[str]) -> dict[str, list[Entry]]:
    """Slices of query, key, value and output by parameter name; a repeated layer adds nothing new."""
    entries: dict[str, list[Entry]] = {}
    seen: set[str] = set()
    for stack in stacks:
        for layer in stack.layers:
            for attention in layer.attentions.values():
                if attention.module not in seen:
                    seen.add(attention.module)
                    _add_attention(entries, attention, names)
    return entries


def _add_attention(entries: dict[str, list[Entry]], attention: Attention, names: set[str]) -> None:
    """Projections of global tokens (Longformer's `query_global`, ...) are split like the others."""
    where = (attention.stack, attention.layer, attention.kind)
    for component in ("query", "key", "value", "output"):
        projection = getattr(attention, component)
        for part in () if projection is None else projection.slices:
            path, _, kind = part.parameter.rpartition(".")
            for name in {part.parameter, f"{path}_global.{kind}"} & names:
                entries.setdefault(name, []).append((component, *where, replace(part, parameter=name)))
    bias = f"{attention.output_projection}.bias"
    entries[bias] = [("output", *where, ParameterSlice(parameter=bias))]


def _classify(
    model: PreTrainedModel, name: str, stacks: tuple[Stack, ...], heads: list[str]
) -> tuple[str, int | None, str | None]:
    """Component, layer and kind of a parameter that no attention projection owns."""
    owner = model.get_submodule(name.rpartition(".")[0])
    norm = "norm" in type(owner).__name__.lower()
    if set(name.split(".")) & set(_ADAPTERS):
        return _adapter(name, stacks)
    if any(part in name for part in _POSITIONS):
        return "positions", None, None
    for stack in stacks:
        for layer in stack.layers:
            if name.startswith(layer.block + "."):
                kind = next((kind for kind, one in layer.attentions.items() if _within(name, one)), None)
                if norm:
                    return "norm", layer.index, kind
                unknown = kind is not None or _in_idle_attention(model, name, layer.block)
                return ("other" if unknown else _mlp_part(name, layer.block)), layer.index, kind
    return _outside_blocks(name, norm, heads), None, None


def _adapter(name: str, stacks: tuple[Stack, ...]) -> tuple[str, int | None, str | None]:
    """Component, layer and kind of an adapter that `peft` added to a weight."""
    for stack in stacks:
        for layer in stack.layers:
            if name.startswith(layer.block + "."):
                kind = next((kind for kind, one in layer.attentions.items() if _within(name, one)), None)
                return "adapter", layer.index, kind
    return "adapter", None, None


def _within(name: str, attention: Attention) -> bool:
    """Whether a parameter is in an attention module or next to its output projection (BERT's attention norm)."""
    neighbours = attention.output_projection.rpartition(".")[0]
    return name.startswith((attention.module + ".", neighbours + "."))


def _in_idle_attention(model: PreTrainedModel, name: str, block: str) -> bool:
    """Whether a parameter belongs to an attention that never runs: a decoder's cross-attention without an encoder."""
    path = name.removeprefix(block + ".").split(".")[:-1]
    inside = (".".join([block, *path[: depth + 1]]) for depth in range(len(path)))
    return any("attention" in type(model.get_submodule(module)).__name__.lower() for module in inside)


def _mlp_part(name: str, block: str) -> str:
    path = name.removeprefix(block + ".").split(".")
    names = set(path[:-1]) | ({path[-1]} if path[-1] not in ("weight", "bias") else set())
    if names & set(_MLP_OUT) or path[-3:-1] == ["output", "dense"]:
        return "mlp_out"
    return "mlp_in"


def _outside_blocks(name: str, norm: bool, heads: list[str]) -> str:
    path = name.split(".")
    if "pooler" in path:
        return "pooler"
    if any(f"{name}.".startswith(f"{prefix}.") for prefix in heads) or set(path) & set(_HEADS):
        return "head"
    if norm:
        return "norm"
    if any(part in name for part in _SEGMENTS):
        return "segments"
    if any(part in name for part in ("embed", "shared", "wte", "project_in")):
        return "embeddings"
    return "other"


def _head_modules(model: PreTrainedModel) -> list[str]:
    """Prefixes of everything that a model with a head adds to its base model."""
    prefixes = []
    for name, child in model.named_modules():
        if isinstance(child, PreTrainedModel) and child.base_model is not child:
            start = f"{name}." if name else ""
            base = next(part for part, module in child.named_children() if module is child.base_model)
            prefixes += [f"{start}{part}" for part, _ in child.named_children() if part != base]
            prefixes += [f"{start}{part}" for part, _ in child.named_parameters(recurse=False)]
    return prefixes


def _stack_of(name: str, component: str, stacks: tuple[Stack, ...]) -> str | None:
    """The stack of a parameter outside the projections: the only one, or the one whose root contains it."""
    if component == "head" or len(stacks) == 1:
        return stacks[-1].name
    for stack in stacks:
        if name.startswith(_root(stack) + "."):
            return stack.name
    return None


def _root(stack: Stack) -> str:
    """`model.encoder` for blocks `model.encoder.layers.0`; the list's parent also holds the stack's tables."""
    block_list = stack.layers[0].block.rpartition(".")[0]
    path = block_list.rpartition(".")[0].split(".")
    depth = next((depth for depth, part in enumerate(path) if part == stack.name), len(path) - 1)
    return ".".join(path[: depth + 1])
