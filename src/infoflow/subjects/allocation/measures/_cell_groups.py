"""Groups of cells, from coarse to fine, whose sums are counted as hurting or helping."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ._cells import NO_HEAD, NO_LAYER, Cell, Cells

Level = Literal["block", "layer", "group"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CellGroups:
    """Three groupings of the cells: a component over all layers, a layer over all components, single cells."""

    level: tuple[Level, ...]  # of each group
    groups: tuple[Cell, ...]
    matrix: np.ndarray  # 0 or 1 (group, cell): the cells of each group
    sizes: np.ndarray  # int64 (group,)

    @classmethod
    def of(cls, cells: Cells) -> "CellGroups":
        keys: dict[tuple[Level, Cell], list[int]] = {}
        for place, cell in enumerate(cells.cells):
            keys.setdefault(("block", cell.group._replace(layer=NO_LAYER)), []).append(place)
            if cell.layer != NO_LAYER:
                layer = Cell(component="", stack=cell.stack, layer=cell.layer, kind="", head=NO_HEAD)
                keys.setdefault(("layer", layer), []).append(place)
            keys.setdefault(("group", cell.group), []).append(place)
        matrix = np.zeros((len(keys), len(cells.cells)))
        for row, places in enumerate(keys.values()):
            matrix[row, places] = 1.0
        sizes = (matrix @ cells.sizes).astype(np.int64)
        return cls(
            level=tuple(level for level, _ in keys), groups=tuple(g for _, g in keys), matrix=matrix, sizes=sizes
        )
