"""The cells of a model: every parameter element is in one component of one layer and, if it has one, one head."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
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
        """The same without its head."""
        return self._replace(head=NO_HEAD)


class _Line(NamedTuple):
    """Entries of one parameter along one dimension, each in one cell."""

    size: int
    dim: int | None  # None: the parameter as a whole


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Cells:
    """Sums tensors shaped like the parameters over the cells of a model.

    A tensor is first summed over all dimensions but the one that separates cells (rows of queries, columns of outputs),
    in float64; this leaves a few numbers per row, so the index takes almost no memory.
    """

    cells: tuple[Cell, ...]
    sizes: np.ndarray  # int64 (cell,): parameter elements
    names: tuple[str, ...]  # of the parameters, in the order of the model
    lines: tuple[_Line, ...]  # one per parameter
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
        """The cells without heads, each once, in order."""
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
    attentions = _attentions(anatomy)
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


def _attentions(anatomy: Anatomy) -> dict[_Place, Attention]:
    """Each attention by its stack, layer and kind."""
    return {(one.stack, one.layer, one.kind): one for one in anatomy.attentions()}


def _heads_of(group: ParameterGroup, attentions: dict[_Place, Attention]) -> int:
    """The number of heads that share a group's entries; 0 if they belong to no single head."""
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
