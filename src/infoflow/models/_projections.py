"""Layout of heads in query, key, value and output projections: separate, fused, interleaved and transposed."""

from torch import nn
from transformers.pytorch_utils import Conv1D

from ._slices import ParameterSlice, Projection

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

    `heads` is the number of heads of each; GPT-2's cross-attention has separate queries and fused keys and values.
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
        ranges = _fused_ranges(fused, _out_features(linear[fused]), missing)
        for part, part_ranges in ranges.items():
            found[part] = _rows(linear[fused], paths[fused], part_ranges, missing[part])
    return found["query"], found["key"], found["value"]


def _without_adapter(name: str, module: nn.Module) -> tuple[str, nn.Module]:
    """A projection and its name, without an adapter that `peft` put around it."""
    inside = getattr(module, "base_layer", None)
    return (f"{name}.base_layer", inside) if isinstance(inside, nn.Module) else (name, module)


def output_projection_slices(model: nn.Module, name: str, num_heads: int) -> Projection:
    """The output projection's weight along its input; the bias belongs to no head."""
    projection = model.get_submodule(name)
    dim = 0 if isinstance(projection, Conv1D) else 1
    weight = ParameterSlice(parameter=f"{name}.weight", dim=dim, ranges=((0, projection.weight.shape[dim]),))
    return Projection(weight=weight, bias=None, num_heads=num_heads)


def _rows(linear: nn.Module, name: str, ranges: Ranges | None, num_heads: int) -> Projection:
    """The part of a linear module's output in `ranges` (default: all)."""
    ranges = ranges or ((0, _out_features(linear)),)
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


def _out_features(linear: nn.Module) -> int:
    return linear.nf if isinstance(linear, Conv1D) else linear.weight.shape[0]
