"""Two layers on the same tokens: the one product over tokens shared by all their similarities."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from ._layer_space import LayerSpace


@dataclass(frozen=True, slots=True, eq=False)
class LayerPair:
    """The inputs of every similarity of a pair of layers, for all rows and without each group of them."""

    x: LayerSpace
    y: LayerSpace
    overlaps: Float[Tensor, "leave_out direction_x direction_y"]
    """Q_x' Q_y of all rows, then without each group; for shuffled rows only the former."""
    fourths: Float[Tensor, " leave_out"]
    """Sum over tokens of the product of both squared norms."""
    order: Int[Tensor, " token"] | None = None
    """Row of y paired with each row of x, if shuffled."""

    @classmethod
    def of(cls, x: LayerSpace, y: LayerSpace) -> "LayerPair":
        """The same tokens in both layers."""
        return cls(x, y, x.groups.covariances(x.directions, y.directions), x.sums(x.squares * y.squares))

    @classmethod
    def shuffled(cls, x: LayerSpace, y: LayerSpace, order: Int[Tensor, " token"]) -> "LayerPair":
        """Unrelated tokens: the baseline."""
        return cls(x, y, x.overlap(y, order).unsqueeze(0), (x.squares @ y.squares[order]).unsqueeze(0), order)

    @property
    def overlap(self) -> Float[Tensor, "direction_x direction_y"]:
        """The overlap of all rows."""
        return self.overlaps[0]

    @property
    def num_tokens(self) -> int:
        return len(self.x.squares)

    @property
    def defined(self) -> bool:
        """Whether both layers vary at all."""
        return self.x.varies and self.y.varies
