"""Remove heads from a model: smaller projections, the same function as with those heads ablated."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.foundation import UserError

from ._anatomy import Anatomy, Attention
from ._bands import attends_densely

Site = tuple[str, str, int]
"""(stack, kind, layer) of an attention."""
Kept = dict[Site, tuple[int, ...]]
"""Remaining heads, by attention, numbered as in the unpruned model."""

_RECORD = "_infoflow_kept_heads"
# Families' names for the number of heads that their forward pass reads, and for widths derived from it.
_HEAD_COUNTS = ("num_heads", "n_heads", "num_attention_heads")
_WIDTHS = ("all_head_size", "inner_dim", "split_size")


def kept_heads(module: nn.Module) -> Kept | None:
    """The remaining heads of the unpruned model; None if none was ever removed."""
    return getattr(module, _RECORD, None)


def remove_heads(module: PreTrainedModel, anatomy: Anatomy, removed: Mapping[Site, Iterable[int]]) -> None:
    """Slice the projections of `module`, in place; `anatomy` then no longer describes it.

    Rows of query, key and value (with their biases) and columns of the output projection are removed; its bias stays.
    Fused, interleaved and transposed layouts are those of the anatomy.

    Args:
        module: The model.
        anatomy: Its anatomy.
        removed: Heads to remove, numbered as in `anatomy`.

    Raises:
        UserError: The layout of the projections is unknown, layers share their weights but not their removed heads, or
            only some heads of a group with a shared key and value would be removed.
    """
    wanted = {site: frozenset(heads) for site, heads in removed.items() if heads}
    plans: dict[str, tuple[int, Tensor]] = {}  # parameter → dimension, indices to remove
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        heads = wanted.get(site, frozenset())
        _require_removable(one, heads, anatomy, wanted)
        if heads and attends_densely(module.get_submodule(one.module)):
            raise UserError(
                f"{one.module} attends in bands or blocks: its own code for global tokens, or for passing data "
                "between layers, counts all heads. So its heads can be ablated but not removed."
            )
        for name, (dim, indices) in _slices(one, heads).items():
            before = plans.get(name, (dim, indices))[1]  # a parameter shared by layers is visited again
            plans[name] = (dim, torch.cat([before, indices]).unique())
    modules: dict[nn.Module, Attention] = {}
    for one in anatomy.attentions():
        modules.setdefault(module.get_submodule(one.module), one)
    for name, (dim, gone) in plans.items():
        _cut(module, name, dim, gone)
    for attention, one in modules.items():
        _recount(attention, one, sorted(wanted.get((one.stack, one.kind, one.layer), ())))
    setattr(module, _RECORD, _still_kept(kept_heads(module), anatomy, wanted))


def _require_removable(
    one: Attention, heads: frozenset[int], anatomy: Anatomy, wanted: Mapping[Site, frozenset[int]]
) -> None:
    if anatomy.stack(one.stack).shared and len({wanted.get((one.stack, one.kind, layer.index), frozenset())
                                                for layer in anatomy.stack(one.stack).layers}) > 1:  # fmt: skip
        raise UserError(
            f"All layers of the {one.stack} share one set of weights, so a head can only be removed from all of them. "
            "Name the same heads in every layer, or ablate them without removing them."
        )
    if not heads:
        return
    if one.own is not None:
        raise UserError(
            f"{one.module} computes attention in its own code, which may use the number of heads in unknown "
            "places, so its heads can be ablated but not removed."
        )
    if one.query is None or one.key is None or one.value is None or one.output is None:
        raise UserError(
            f"The projections of {one.module} have an unknown layout, so its heads can be ablated but not removed."
        )
    size = one.group_size
    for group in range(one.num_key_value_heads):
        members = set(range(group * size, (group + 1) * size))
        if 0 < len(members & heads) < size:
            there = ", ".join(map(str, sorted(members)))
            raise UserError(
                f"Heads {there} of {one.stack} {one.kind}-attention layer {one.layer} share one key and value, so they "
                f"can only be removed together. Got {', '.join(map(str, sorted(members & heads)))}. Remove the whole "
                'group, or pass incomplete="zero": heads of incomplete groups then stay but output zero.'
            )


def _slices(one: Attention, heads: frozenset[int]) -> dict[str, tuple[int, Tensor]]:
    """Rows and columns of an attention's parameters that belong to these heads, by parameter name."""
    groups = sorted({head // one.group_size for head in heads})
    found: dict[str, tuple[int, Tensor]] = {}
    parts = ((one.query, sorted(heads)), (one.key, groups), (one.value, groups), (one.output, sorted(heads)))
    for projection, members in parts:
        for piece in (piece for member in members for piece in projection.head(member)) if projection else ():
            assert piece.dim is not None
            before = found.get(piece.parameter, (piece.dim, torch.empty(0, dtype=torch.long)))[1]
            found[piece.parameter] = (piece.dim, torch.cat([before, piece.indices()]).unique())
    return found


def _cut(module: nn.Module, name: str, dim: int, gone: Tensor) -> None:
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    parameter = getattr(owner, attribute)
    keep = torch.ones(parameter.shape[dim], dtype=torch.bool)
    keep[gone] = False
    rest = parameter.detach().index_select(dim, keep.nonzero().flatten().to(parameter.device)).clone()
    setattr(owner, attribute, nn.Parameter(rest, requires_grad=parameter.requires_grad))
    if attribute != "weight":
        return
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = rest.shape
    else:  # Conv1D: (in, out)
        owner.nx, owner.nf = rest.shape  # type: ignore[assignment]


def _recount(attention: nn.Module, one: Attention, heads: list[int]) -> None:
    """Update an attention's number of heads. Without it OPT silently computes something else under SDPA."""
    if not heads:
        return
    left = one.num_heads - len(heads)
    for name in _HEAD_COUNTS:
        if isinstance(getattr(attention, name, None), int):
            setattr(attention, name, left)
    for name in _WIDTHS:
        if isinstance(getattr(attention, name, None), int):
            setattr(attention, name, left * one.head_dim)
    if isinstance(getattr(attention, "num_key_value_heads", None), int):
        attention.num_key_value_heads = left // one.group_size  # type: ignore[assignment]
    if hasattr(attention, "has_relative_attention_bias"):
        _keep_full_bias(attention, [head for head in range(one.num_heads) if head not in heads], one.num_heads)


class _FullBias:
    """T5's relative bias, built once for all heads and passed from layer to layer.

    A smaller attention uses its heads' part and passes on the whole.
    """

    kept_bias: list[int]
    bias_heads: int

    def compute_bias(self, *args: Any, **kwargs: Any) -> Tensor:
        self._full = super().compute_bias(*args, **kwargs)  # type: ignore[misc]
        return self._full[:, self.kept_bias]

    def forward(self, *args: Any, position_bias: Tensor | None = None, **kwargs: Any) -> tuple[Any, ...]:
        own = None if position_bias is None else position_bias[:, self.kept_bias]
        output, used, *rest = super().forward(*args, position_bias=own, **kwargs)  # type: ignore[misc]
        if position_bias is None:
            first = self.has_relative_attention_bias  # type: ignore[attr-defined]
            position_bias = self._full if first else used.new_zeros(1, self.bias_heads, *used.shape[2:])
        return output, position_bias, *rest


def _keep_full_bias(attention: Any, kept: list[int], num_heads: int) -> None:
    if isinstance(attention, _FullBias):  # pruned before: its own heads are already a part
        attention.kept_bias = [attention.kept_bias[head] for head in kept]
        return
    family = type(attention)
    attention.__class__ = type(family.__name__, (_FullBias, family), {"__module__": family.__module__})
    attention.kept_bias, attention.bias_heads = kept, num_heads


def _still_kept(before: Kept | None, anatomy: Anatomy, wanted: Mapping[Site, frozenset[int]]) -> Kept:
    kept = {}
    for one in anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        names = before[site] if before is not None else tuple(range(one.num_heads))
        kept[site] = tuple(name for head, name in enumerate(names) if head not in wanted.get(site, ()))
    return kept
