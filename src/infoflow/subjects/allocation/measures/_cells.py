"""Cells, the smallest parts of a model for which allocations are summed, and their groups and histograms."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import Anatomy, Attention, ParameterGroup, learning_parameters

NO_HEAD = -1
NO_LAYER = -1
ATTENTION = ("query", "key", "value", "output")
_Place = tuple[str | None, int | None, str | None]  # stack, layer and kind


class Cell(NamedTuple):
    """The smallest region for sums of allocations."""

    component: str  # of the anatomy: "embeddings", "query", ..., "mlp_in" (W1), "mlp_out" (W2), "norm", "head", ...
    stack: str  # "encoder", "decoder"; "" if both share it
    layer: int  # −1 outside the blocks
    kind: str  # "self" or "cross" for attention and its norm, else ""
    head: int  # −1 if the region belongs to no single head

    @property
    def group(self) -> "Cell":
        """The cell without its head."""
        return self._replace(head=NO_HEAD)


class _Line(NamedTuple):
    """Entries of one parameter along one dimension, each belonging to one cell."""

    size: int
    dim: int | None  # None: the parameter as a whole


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Cells:
    """Sum tensors shaped like the parameters over the cells of a model.

    A tensor is first summed over all dimensions but the one that separates cells (rows of queries, columns of outputs),
    in float64. This leaves a few numbers per row, so the index takes almost no memory.
    """

    cells: tuple[Cell, ...]
    sizes: np.ndarray  # int64 (cell,): parameter elements
    names: tuple[str, ...]  # the parameters' names, in the order of the model
    lines: tuple[_Line, ...]  # one for each parameter
    cell_of_line: Tensor  # int64 (line,): all lines concatenated

    def sums(self, tensors: Iterable[Tensor]) -> Float64[Tensor, " cell"]:
        """Sum over each cell, float64; `tensors` are shaped like the parameters, in their order."""
        parts = [_along(tensor, line.dim) for tensor, line in zip(tensors, self.lines, strict=True)]
        lines = torch.cat(parts)
        index = self.cell_of_line.to(lines.device)
        return torch.zeros(len(self.cells), dtype=torch.float64, device=lines.device).index_add_(0, index, lines)

    def maxima(self, tensors: Iterable[Tensor]) -> Float64[Tensor, " cell"]:
        """Largest value in each cell, float64."""
        parts = [_along(tensor, line.dim, largest=True) for tensor, line in zip(tensors, self.lines, strict=True)]
        lines = torch.cat(parts)
        index = self.cell_of_line.to(lines.device)
        lowest = torch.full((len(self.cells),), -torch.inf, dtype=torch.float64, device=lines.device)
        return lowest.scatter_reduce_(0, index, lines, "amax")

    def merged(self, groups: list[Cell]) -> np.ndarray:
        """The row of each cell's group in `groups`, int64 (cell,)."""
        place = {group: row for row, group in enumerate(groups)}
        return np.array([place[cell.group] for cell in self.cells])

    @property
    def groups(self) -> list[Cell]:
        """The cells without their heads, each listed once, in order."""
        return list(dict.fromkeys(cell.group for cell in self.cells))


def find_cells(module: nn.Module, anatomy: Anatomy, separate_bias: bool = False) -> Cells:
    """The cells of a model's trainable parameters.

    A head owns rows of the query, key and value projections with their biases, and columns of the output projection
    (rows if a family stores it transposed); the output bias belongs to no head. If several query heads share a key and
    a value head, those belong to no single head. A bias joins its matrix unless `separate_bias` makes it a separate
    component, such as "query bias".

    Raises:
        UserError: A parameter is in no component of the anatomy, or in two.
    """
    attentions: dict[_Place, Attention] = {(one.stack, one.layer, one.kind): one for one in anatomy.attentions()}
    by_parameter: dict[str, list[ParameterGroup]] = {}
    for group in anatomy.parameter_groups:
        by_parameter.setdefault(group.slice.parameter, []).append(group)
    parameters = learning_parameters(module)
    index: dict[Cell, int] = {}
    lines, cell_of_line = [], []
    for name, parameter in parameters.items():
        line, owned = _line_of(name, parameter, by_parameter.get(name, []), attentions, separate_bias)
        lines.append(line)
        cell_of_line += [index.setdefault(cell, len(index)) for cell in owned]
    elements = np.repeat(
        [p.numel() // line.size for p, line in zip(parameters.values(), lines, strict=True)],
        [one.size for one in lines],
    )
    sizes = np.bincount(cell_of_line, weights=elements, minlength=len(index)).astype(np.int64)
    return Cells(
        cells=tuple(index),
        sizes=sizes,
        names=tuple(parameters),
        lines=tuple(lines),
        cell_of_line=torch.tensor(cell_of_line),
    )


def _line_of(
    name: str, parameter: Tensor, groups: list[ParameterGroup], attentions: dict[_Place, Attention], bias: bool
) -> tuple[_Line, list[Cell]]:
    """How a parameter is split, and the cell of each entry along the split."""
    if not groups or any(group.component == "other" for group in groups):
        raise UserError(
            f"The parameter {name} belongs to no component that infoflow knows, so allocations would not add up.\n"
            "Report the model's family, or freeze the parameter (requires_grad_(False))."
        )
    dims = {group.slice.dim for group in groups}
    assert len(dims) == 1, f"{name} is cut along several dimensions"
    dim = dims.pop()
    size = 1 if dim is None else parameter.shape[dim]
    owned: list[Cell | None] = [None] * size
    for group in groups:
        cell = _cell(group, bias and parameter.ndim == 1 and name.endswith("bias"))
        heads = _heads_of(group, attentions)
        entries = [0] if dim is None else group.slice.indices().tolist()
        for position, entry in enumerate(entries):
            assert owned[entry] is None, f"{name} has an entry in two groups"
            owned[entry] = cell._replace(head=position * heads // len(entries) if heads else NO_HEAD)
    assert None not in owned, f"{name} has an entry in no group"
    return _Line(size=size, dim=dim), [cell for cell in owned if cell is not None]


def _cell(group: ParameterGroup, bias: bool) -> Cell:
    return Cell(
        component=f"{group.component} bias" if bias else group.component,
        stack=group.stack or "",
        layer=NO_LAYER if group.layer is None else group.layer,
        kind=group.kind or "",
        head=NO_HEAD,
    )


def _heads_of(group: ParameterGroup, attentions: dict[_Place, Attention]) -> int:
    """The number of heads that share a group's entries; 0 if the entries belong to no single head."""
    attention = attentions.get((group.stack, group.layer, group.kind))
    if attention is None or group.component not in ATTENTION or group.slice.dim is None:
        return 0
    shared = attention.num_key_value_heads != attention.num_heads and group.component in ("key", "value")
    return 0 if shared else attention.num_heads


def _along(tensor: Float[Tensor, "..."] | Int[Tensor, "..."], dim: int | None, largest: bool = False) -> Tensor:
    """Sums (or maxima) along all dimensions but `dim`, float64."""
    others = [other for other in range(tensor.ndim) if other != dim]
    if not others:
        return tensor.to(torch.float64).reshape(-1)
    reduced = tensor.amax(others).to(torch.float64) if largest else tensor.sum(others, dtype=torch.float64)
    return reduced.reshape(-1)


# Groups of cells, from coarse to fine, whose sums are counted as hurting or helping.


Level = Literal["block", "layer", "group"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CellGroups:
    """Three groupings of the cells: a component over all layers, a layer over all components, single cells."""

    level: tuple[Level, ...]  # level of each group
    groups: tuple[Cell, ...]
    matrix: np.ndarray  # 0 or 1 (group, cell): the cells of each group
    sizes: np.ndarray  # int64 (group,)

    @classmethod
    def of(cls, cells: Cells) -> "CellGroups":
        keys: dict[tuple[Level, Cell], list[int]] = {}
        for index, cell in enumerate(cells.cells):
            keys.setdefault(("block", cell.group._replace(layer=NO_LAYER)), []).append(index)
            if cell.layer != NO_LAYER:
                layer = Cell(component="", stack=cell.stack, layer=cell.layer, kind="", head=NO_HEAD)
                keys.setdefault(("layer", layer), []).append(index)
            keys.setdefault(("group", cell.group), []).append(index)
        matrix = np.zeros((len(keys), len(cells.cells)))
        for row, places in enumerate(keys.values()):
            matrix[row, places] = 1.0
        sizes = (matrix @ cells.sizes).astype(np.int64)
        return cls(
            level=tuple(level for level, _ in keys), groups=tuple(g for _, g in keys), matrix=matrix, sizes=sizes
        )


# Distribution of single parameters' allocations: counts in fixed symmetric logarithmic bins, by group.


_PER_DECADE, _SMALLEST, _DECADES = 2, -14, 14
_SIDE = _PER_DECADE * _DECADES  # bins of one sign
NUM_BINS = 2 * _SIDE + 1
"""Number of histogram bins: both signs in half decades, and one for zero."""


class Histogram:
    """Counts (group, bin) over all added chords (steps on which loss changes are allocated).

    The bins are the negative ones, a bin for exactly 0, and the positive ones.

    A bin spans half a decade, from 1e-14 nats to 1; smaller or larger values fall into the outermost bins.
    """

    def __init__(self, cells: Cells, shapes: list[torch.Size], like: Tensor) -> None:
        self.groups: list[Cell] = cells.groups
        place = torch.from_numpy(cells.merged(self.groups))[cells.cell_of_line]
        self._group = _of_elements(cells, place, shapes).to(like.device)
        self.counts = torch.zeros(len(self.groups) * NUM_BINS, dtype=torch.int64, device=like.device)
        self.chords = 0

    def add(self, allocation: Float[Tensor, " parameter"]) -> None:
        """Count one chord."""
        place = self._group.to(torch.int64).mul_(NUM_BINS).add_(bins_of(allocation))
        self.counts += torch.bincount(place, minlength=len(self.counts))
        self.chords += 1

    @property
    def counts_GB(self) -> np.ndarray:
        return self.counts.cpu().numpy().reshape(len(self.groups), NUM_BINS)

    def state(self) -> dict[str, Tensor]:
        return {"counts": self.counts, "chords": torch.tensor(self.chords)}

    def load(self, state: dict[str, Tensor]) -> None:
        if state:  # a run begun before histograms existed continues without its first chords
            self.counts = state["counts"].to(self.counts.device, copy=True)
            self.chords = int(state["chords"])


def bins_of(values: Float[Tensor, " parameter"]) -> Int64[Tensor, " parameter"]:
    """The bin of each value; NaN counts as 0."""
    values = torch.nan_to_num(values, nan=0.0)
    size = values.abs().log10_().sub_(_SMALLEST).mul_(_PER_DECADE).floor_().clamp_(0, _SIDE - 1).add_(1)
    return size.mul_(torch.sign(values)).add_(_SIDE).to(torch.int64)


def bin_edges() -> list[tuple[float, float]]:
    """The lower and the upper end of each bin; (0, 0) is exactly 0."""
    inner = [10.0 ** (_SMALLEST + step / _PER_DECADE) for step in range(1, _SIDE)]
    positive = list(zip([0.0, *inner], [*inner, float("inf")], strict=True))
    return [(-high, -low) for low, high in reversed(positive)] + [(0.0, 0.0)] + positive


def _of_elements(cells: Cells, place: Tensor, shapes: list[torch.Size]) -> Tensor:
    """The group of each parameter element; int16 if there are few enough groups."""
    counted, start = [], 0
    for line, shape in zip(cells.lines, shapes, strict=True):
        own, start = place[start : start + line.size], start + line.size
        axes = [line.size if dim == line.dim else 1 for dim in range(len(shape))]
        counted.append(own.view(axes).expand(shape).reshape(-1))
    return torch.cat(counted).to(torch.int16 if len(cells.groups) < 2**15 else torch.int32)
