"""Any model as stacks of layers of attention heads, with the regions of parameters that belong to each."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoflow.foundation import shown_by


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterSlice:
    """Part of one parameter tensor: all of it, or ranges of indices along one dimension.

    Ranges are half-open, in the order of the heads; fused layouts that interleave heads need more than one.

    >>> part = ParameterSlice(parameter="query.weight", dim=0, ranges=((0, 2), (6, 8)))
    >>> part.indices().tolist(), part.take(torch.arange(8)).tolist(), part.split(1, 2).ranges
    ([0, 1, 6, 7], [0, 1, 6, 7], ((6, 8),))
    """

    parameter: str
    dim: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()

    def indices(self) -> Tensor:
        """Indices along `dim`, in order; a whole parameter has none."""
        assert self.dim is not None, "a whole parameter has no indices"
        return torch.cat([torch.arange(start, stop) for start, stop in self.ranges])

    def take(self, tensor: Tensor) -> Tensor:
        """The slice of a tensor that has the parameter's shape (such as a weight or its gradient)."""
        if self.dim is None:
            return tensor
        parts = [tensor.narrow(self.dim, start, stop - start) for start, stop in self.ranges]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=self.dim)

    def mask(self, tensor: Tensor) -> Tensor:
        """True where an element of the parameter `tensor` belongs to the slice."""
        mask = torch.zeros(tensor.shape, dtype=torch.bool)
        if self.dim is None:
            return ~mask
        for start, stop in self.ranges:
            mask.narrow(self.dim, start, stop - start).fill_(True)
        return mask

    def split(self, index: int, parts: int) -> "ParameterSlice":
        """The `index`-th of `parts` equal pieces along `dim`, for example what belongs to one head."""
        assert self.dim is not None, "a whole parameter cannot be split between heads"
        size = sum(stop - start for start, stop in self.ranges) // parts
        return ParameterSlice(
            parameter=self.parameter, dim=self.dim, ranges=_window(self.ranges, index * size, (index + 1) * size)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The query, key, value or output projection of an attention: its weight, its bias, and each head's part.

    Query, key and value split into heads along the rows of an `nn.Linear` weight (columns when `Conv1D` stores it
    transposed) and along the bias. The output projection splits along its input; its bias belongs to no head and is
    left out here.
    """

    weight: ParameterSlice
    bias: ParameterSlice | None
    num_heads: int

    def head(self, index: int) -> tuple[ParameterSlice, ...]:
        """Slices of weight and bias that belong to one head (for keys and values: one key/value head)."""
        assert 0 <= index < self.num_heads, f"head {index} of {self.num_heads}"
        return tuple(part.split(index, self.num_heads) for part in self.slices)

    @property
    def slices(self) -> tuple[ParameterSlice, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


def _window(ranges: tuple[tuple[int, int], ...], start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """The range start..stop of the concatenated ranges, as ranges of the tensor."""
    window, offset = [], 0
    for low, high in ranges:
        first, last = max(start - offset, 0), min(stop - offset, high - low)
        if first < last:
            window.append((low + first, low + last))
        offset += high - low
    return tuple(window)


_LISTED = "embeddings positions segments query key value output mlp_in mlp_out norm head pooler adapter other"
COMPONENTS = tuple(_LISTED.split())
"""Components: groups of a model's parameters."""


def keys_stack(stack: str, kind: str) -> str:
    """The stack of the keys: the encoder's in cross-attention, else the attention's own."""
    return "encoder" if kind == "cross" else stack


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCode:
    """An attention that its family computes in its own code, not through the function that Hugging Face looks up."""

    num_heads: int
    scaling: float | None  # s if scores are s q kᵀ plus constants; else None (DeBERTa)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One attention of a layer: its heads and projections."""

    kind: str  # "self" or "cross"
    stack: str
    layer: int
    module: str  # name of the module that calls the attention function
    num_heads: int  # query heads: maps, gates and relevance have one entry per query head
    num_key_value_heads: int
    head_dim: int  # width of a head's output (values)
    output_projection: str  # name of the module that mixes the heads
    transposed: bool  # the output projection stores its weight as (in, out), as GPT-2's Conv1D does
    query: Projection | None  # None: a layout this library does not know; its parameters are in the group "other"
    key: Projection | None
    value: Projection | None
    output: Projection | None
    own: OwnCode | None = None  # None: it calls the attention function
    gated: bool = False  # heads' outputs are multiplied by a gate before the output projection (Qwen3-Next)

    @property
    def keys_stack(self) -> str:
        """The stack whose tokens are attended to."""
        return keys_stack(self.stack, self.kind)

    @property
    def group_size(self) -> int:
        """Query heads per key/value head: 1 if each has its own, or no head is left."""
        return self.num_heads // self.num_key_value_heads if self.num_key_value_heads else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One block: it maps state `index` to state `index + 1`."""

    index: int
    block: str  # module name; the same for all layers if a model shares its weights (ALBERT)
    attentions: dict[str, Attention]  # by kind
    other_paths: bool = False  # tokens interact outside this attention (Mamba, convolution)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """Layers in the order in which a forward pass runs them."""

    name: str  # "encoder" or "decoder"
    causal: bool  # no token sees a later one
    width: int
    layers: tuple[Layer, ...]
    layout: tuple[int, ...] = ()  # dimensions of sentence, token, (stream,) width in block states; (): in this order
    streams: int = 1  # residual streams that the blocks hand on (Gemma 3n: 4)

    def joined(self, states: Tensor) -> Tensor:
        """States in a block's own layout as (sentence, token, width), with several residual streams concatenated."""
        return states.permute(self.layout).flatten(2) if self.layout else states

    def parted(self, states: Tensor) -> Tensor:
        """The inverse of `joined`."""
        states = states.unflatten(-1, (self.streams, -1)) if self.streams > 1 else states
        order = sorted(range(len(self.layout)), key=lambda dim: self.layout[dim])
        return states.permute(order) if order else states

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of attention in this stack: "self", and "cross" in the decoder of a sequence-to-sequence model."""
        return tuple(kind for kind in ("self", "cross") if any(kind in layer.attentions for layer in self.layers))

    @property
    def shared(self) -> bool:
        """Whether several layers are the same module, run repeatedly."""
        return len({layer.block for layer in self.layers}) < len(self.layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterGroup:
    """One parameter, or part of one, and its role.

    A group such as "queries of decoder layer 2" is the set of entries with equal component, stack, layer and kind: a
    weight and its bias, or both matrices that enter a gated MLP.
    """

    component: str  # one of COMPONENTS
    stack: str | None  # None: shared by both stacks
    layer: int | None  # None: outside the blocks; with shared weights, the first layer that uses it
    kind: str | None  # "self" or "cross" for query, key, value, output
    slice: ParameterSlice
    size: int  # number of elements


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """Stacks, layers, heads and parameter groups of a model; `print` shows it as a table."""

    stacks: tuple[Stack, ...]  # an encoder before its decoder
    parameter_groups: tuple[ParameterGroup, ...] = field(repr=False)
    unread: str = ""  # why the model's heads, if it has any, cannot be read

    @property
    def reads(self) -> Stack:
        """The stack that reads the text: the encoder if there is one."""
        return self.stacks[0]

    @property
    def predicts(self) -> Stack:
        """The stack with the output head: the decoder if there is one."""
        return self.stacks[-1]

    def stack(self, name: str) -> Stack:
        return next(stack for stack in self.stacks if stack.name == name)

    def attentions(self) -> Iterator[Attention]:
        """Every attention in order: by stack, then kind, then layer."""
        for stack in self.stacks:
            for kind in stack.kinds:
                yield from (layer.attentions[kind] for layer in stack.layers if kind in layer.attentions)

    def head_numbers(self) -> dict[tuple[str, str], list[int]]:
        """(stack, kind) → the number of heads in each layer; 0 in a layer without this attention."""
        return {
            (stack.name, kind): [
                layer.attentions[kind].num_heads if kind in layer.attentions else 0 for layer in stack.layers
            ]
            for stack in self.stacks
            for kind in stack.kinds
        }

    def outside_attention(self) -> str | None:
        """A clause that says where tokens interact outside attention; None if nowhere."""
        found = []
        for stack in self.stacks:
            blocks = [str(layer.index) for layer in stack.layers if layer.other_paths]
            if blocks:
                found.append(f"block{'s' if len(blocks) > 1 else ''} {', '.join(blocks)} of the {stack.name}")
        if not found:
            return None
        return f"its tokens also reach each other outside attention (Mamba, convolution, ...), in {'; '.join(found)}"

    def several_streams(self) -> str | None:
        """A clause that says why heads do not add to one state; None if there is one residual stream."""
        num = max((stack.streams for stack in self.stacks), default=1)
        return f"its blocks mix {num} residual streams, so heads do not add to one state" if num > 1 else None

    def lacks(self) -> str | None:
        """A clause that says what is missing for measurements, layers or heads; None if the model has both."""
        if not any(stack.layers for stack in self.stacks):
            return "it has no layers: a token's vector is the same in every sentence"
        if not any(layer.attentions for stack in self.stacks for layer in stack.layers):
            return "its heads cannot be read" if self.unread else "its layers have no attention, so it has no heads"
        return None

    def num_parameters(self, component: str | None = None) -> int:
        """Number of parameter elements, of one component or of all."""
        return sum(group.size for group in self.parameter_groups if component in (None, group.component))

    @property
    def tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """Stacks with their heads, and parameters by component, as rows of text; the first row has the column names."""
        return _stack_rows(self.stacks), _component_rows(self)

    _repr_html_ = shown_by("anatomy_shown")

    def __repr__(self) -> str:
        stacks = [f"{stack.name}: {len(stack.layers)} layers of width {stack.width}" for stack in self.stacks]
        return f"Anatomy({'; '.join(stacks)}; {self.num_parameters():,} parameters)"

    def __str__(self) -> str:
        reason = self.outside_attention()
        note = [f"Note: {reason}."] if reason else []
        return "\n".join([*_table(_stack_rows(self.stacks)), *note, "", *_table(_component_rows(self))])


def _stack_rows(stacks: tuple[Stack, ...]) -> list[list[str]]:
    rows = [["stack", "attention", "layers", "width", "heads", "head width", "output projection"]]
    for stack in stacks:
        for kind in stack.kinds:
            attentions = [layer.attentions[kind] for layer in stack.layers if kind in layer.attentions]
            rows.append(
                [
                    stack.name + (" (causal)" if stack.causal else ""),
                    kind,
                    f"{len(stack.layers)} (one, shared)" if stack.shared else str(len(stack.layers)),
                    str(stack.width),
                    _distinct(_heads(attention) for attention in attentions),
                    _distinct(str(attention.head_dim) for attention in attentions),
                    attentions[0].output_projection + (" (transposed)" if attentions[0].transposed else ""),
                ]
            )
    return rows


def _heads(attention: Attention) -> str:
    if attention.num_key_value_heads == attention.num_heads:
        return str(attention.num_heads)
    return f"{attention.num_heads} over {attention.num_key_value_heads} key/value"


def _distinct(values: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _component_rows(anatomy: Anatomy) -> list[list[str]]:
    counts: Counter[str] = Counter()
    for group in anatomy.parameter_groups:
        counts[group.component] += group.size
    total = counts.total()
    rows = [["parameters", "number", "share"]]
    rows += [[name, f"{counts[name]:,}", f"{counts[name] / total:.1%}"] for name in COMPONENTS if counts[name]]
    return [*rows, ["all", f"{total:,}", "100.0%"]]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
