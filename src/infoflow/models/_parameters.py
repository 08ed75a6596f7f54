"""Every parameter of a model in exactly one group, and the parts of projections that belong to heads."""

from dataclasses import replace

from torch import nn

from infoflow._transformers import Conv1D, PreTrainedModel

from ._anatomy import Attention, ParameterGroup, ParameterSlice, Projection, Stack

_SEPARATE = {
    "query": ("query", "q_proj", "q_lin", "q", "q_attn", "to_q", "query_proj"),
    "key": ("key", "k_proj", "k_lin", "k", "to_k", "key_proj"),
    "value": ("value", "v_proj", "v_lin", "v", "to_v", "value_proj"),
}
_CONTIGUOUS = ("c_attn", "Wqkv", "qkv_proj", "qkv")  # all queries, then all keys, then all values
_INTERLEAVED = ("query_key_value",)  # q, k, v of head 0, then of head 1, ...

Ranges = tuple[tuple[int, int], ...]


def find_projections(
    attention: nn.Module, name: str, heads: tuple[int, int, int]
) -> tuple[Projection | None, Projection | None, Projection | None]:
    """Query, key and value projections of an attention module, each None if its layout is unknown.

    `heads` are the numbers of heads of the three projections. GPT-2's cross-attention has separate queries, and fuses
    keys and values.
    """
    modules = {child: _without_adapter(child, module) for child, module in attention.named_children()}
    paths = {child: f"{name}.{path}" for child, (path, _) in modules.items()}
    linear = {child: module for child, (_, module) in modules.items() if isinstance(module, nn.Linear | Conv1D)}
    found: dict[str, Projection | None] = {}
    for (part, candidates), num_heads in zip(_SEPARATE.items(), heads, strict=True):
        match = next((child for child in candidates if child in linear), None)
        found[part] = _rows(linear[match], paths[match], None, num_heads) if match else None
    missing = {part: num for (part, found_part), num in zip(found.items(), heads, strict=True) if found_part is None}
    fused = next((child for child in (*_CONTIGUOUS, *_INTERLEAVED) if child in linear), None)
    if fused and missing:
        ranges = _fused_ranges(fused, out_features(linear[fused]), missing)
        for part, part_ranges in ranges.items():
            found[part] = _rows(linear[fused], paths[fused], part_ranges, missing[part])
    return found["query"], found["key"], found["value"]


def _without_adapter(name: str, module: nn.Module) -> tuple[str, nn.Module]:
    """A projection and its name, without an adapter that `peft` has wrapped around it."""
    inside = getattr(module, "base_layer", None)
    return (f"{name}.base_layer", inside) if isinstance(inside, nn.Module) else (name, module)


def output_projection_slices(model: nn.Module, name: str, num_heads: int) -> Projection:
    """The output projection's weight, to be split into heads along its input dimension; the bias belongs to no head."""
    projection = model.get_submodule(name)
    dim = 0 if isinstance(projection, Conv1D) else 1
    weight = ParameterSlice(parameter=f"{name}.weight", dim=dim, ranges=((0, projection.weight.shape[dim]),))
    return Projection(weight=weight, bias=None, num_heads=num_heads)


def _rows(linear: nn.Module, name: str, ranges: Ranges | None, num_heads: int) -> Projection:
    """The part of a linear module's output in `ranges` (default: all)."""
    ranges = ranges or ((0, out_features(linear)),)
    dim = 1 if isinstance(linear, Conv1D) else 0
    bias = None if linear.bias is None else ParameterSlice(parameter=f"{name}.bias", dim=0, ranges=ranges)
    return Projection(
        weight=ParameterSlice(parameter=f"{name}.weight", dim=dim, ranges=ranges), bias=bias, num_heads=num_heads
    )


def _fused_ranges(fused: str, size: int, heads: dict[str, int]) -> dict[str, Ranges]:
    """Output ranges of each part of a fused projection; empty for an unknown layout."""
    width, rest = divmod(size, max(1, sum(heads.values())))
    if rest:
        return {}
    if fused in _CONTIGUOUS:
        ranges, start = {}, 0
        for part, num_heads in heads.items():
            ranges[part] = ((start, start + num_heads * width),)
            start += num_heads * width
        return ranges
    if len(set(heads.values())) > 1:  # families interleave grouped heads differently
        return {}
    starts = range(0, size, max(1, len(heads) * width))
    return {
        part: tuple((start + offset * width, start + (offset + 1) * width) for start in starts)
        for offset, part in enumerate(heads)
    }


def out_features(linear: nn.Module) -> int:
    return linear.nf if isinstance(linear, Conv1D) else linear.out_features


# Every parameter of a model in exactly one group, by its full path.


_POSITIONS = ("position", "wpe", "relative_attention_bias")
_SEGMENTS = ("token_type", "segment")
_MLP_OUT = ("fc2", "lin2", "down_proj", "wo", "Wo", "c_proj", "ffn_output", "dense_4h_to_h", "w2")
_ADAPTERS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
_HEADS = ("cls", "lm_head", "project_out", "score", "classifier")


def parameter_groups(model: PreTrainedModel, stacks: tuple[Stack, ...]) -> tuple[ParameterGroup, ...]:
    """Parameter groups in the order of `model.named_parameters()`; a tied parameter appears once, under its first name.

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
    """The name of each embedding table; a tied table may be listed under its output matrix's name (XLM-R)."""
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
    """Add an attention's slices, also of the projections of global tokens (Longformer's `query_global`, ...)."""
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
    """Component, layer and kind of a parameter that does not belong to an attention projection."""
    owner = model.get_submodule(name.rpartition(".")[0])
    norm = "norm" in type(owner).__name__.lower()
    adapter = not set(_ADAPTERS).isdisjoint(name.split("."))  # `peft` added it to a weight
    if not adapter and any(part in name for part in _POSITIONS):
        return "positions", None, None
    for layer in (layer for stack in stacks for layer in stack.layers):
        if name.startswith(layer.block + "."):
            kind = next((kind for kind, one in layer.attentions.items() if _within(name, one)), None)
            if adapter or norm:
                return "adapter" if adapter else "norm", layer.index, kind
            unknown = kind is not None or _in_idle_attention(model, name, layer.block)
            return ("other" if unknown else _mlp_part(name, layer.block)), layer.index, kind
    return "adapter" if adapter else _outside_blocks(name, norm, heads), None, None


def _within(name: str, attention: Attention) -> bool:
    """Whether a parameter is in an attention module or next to its output projection (BERT's attention norm)."""
    neighbours = attention.output_projection.rpartition(".")[0]
    return name.startswith((attention.module + ".", neighbours + "."))


def _in_idle_attention(model: PreTrainedModel, name: str, block: str) -> bool:
    """Whether a parameter belongs to an attention that never runs, such as cross-attention without an encoder."""
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
    """The root of a stack: `model` for blocks `model.layers.0`, whose parent list also holds the stack's tables."""
    block_list = stack.layers[0].block.rpartition(".")[0]
    path = block_list.rpartition(".")[0].split(".")
    depth = next((depth for depth, part in enumerate(path) if part == stack.name), len(path) - 1)
    return ".".join(path[: depth + 1])
