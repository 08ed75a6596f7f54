"""One layer's states as orthonormal directions, and products of two layers over the same tokens."""

# leave_out: all rows, then all rows but those of each group of bootstrap blocks

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._block_groups import BlockGroups
from ._cca import orthonormal, singular_floor, whiten
from ._cka import LEAST_ROWS, hsic_debiased
from ._views import by_direction, centred, gram, product

_SHARE = 0.99  # of the variance, explained by the components that SVCCA keeps


class LayerSpace:
    """Centred states X = Q L: `directions` Q has orthonormal columns, `loadings` L places them in the layer.

    Every similarity that is invariant to rotations of the states is a function of Qx'Qy and both L, so a pair of layers
    needs only one matrix product over the tokens. Q is kept in float32: its entries are below 1, so the product has an
    error of about 1e-7. L, which holds all scales, and all later computations are in float64.
    """

    def __init__(self, states: Float[np.ndarray, "token width"], groups: BlockGroups) -> None:
        raw = torch.from_numpy(states)
        x = centred(raw[groups.order].to(torch.float64))
        white = whiten(gram(x))
        if white.safe or len(white.loadings) == 0:
            directions, loadings = x @ white.basis, white.loadings
        else:
            directions, loadings = orthonormal(x, singular_floor(raw.dtype))
        self.groups = groups
        self.directions: Float[Tensor, "token direction"] = by_direction(directions)
        self.loadings: Float[Tensor, "direction width"] = loadings
        self.squares: Float[Tensor, " token"] = torch.linalg.vector_norm(x, dim=1).square()

    @property
    def varies(self) -> bool:
        return len(self.loadings) > 0

    @cached_property
    def grams(self) -> Float[Tensor, "leave_out direction direction"]:
        """Q'Q of all rows (the identity, up to rounding), then without each group, centred on the other rows."""
        return self.groups.covariances(self.directions, self.directions)

    @cached_property
    def spread(self) -> Float[Tensor, "direction direction"]:
        """L L'."""
        return self.loadings @ self.loadings.mT

    @cached_property
    def variances(self) -> Float[Tensor, " leave_out"]:
        """Squared Frobenius norm of the centred states."""
        return torch.einsum("gij,ij->g", self.grams, self.spread)

    @cached_property
    def leading(self) -> Float[Tensor, "direction component"]:
        """The principal components, as combinations of directions, that explain 99% of the variance."""
        values, vectors = torch.linalg.eigh(self.spread)
        explained = values.flip(0).cumsum(0) / values.sum()
        return vectors.flip(1)[:, : int((explained < _SHARE).sum()) + 1]

    def overlap(
        self, other: "LayerSpace", order: Int[Tensor, " token"] | None = None
    ) -> Float[Tensor, "direction other_direction"]:
        """Q'Q_other, with the other layer's rows in another `order`."""
        directions = other.directions if order is None else other.directions.mT[:, order].mT
        return product(self.directions, directions).to(torch.float64)

    def hsic(
        self,
        other: "LayerSpace",
        overlaps: Float[Tensor, "leave_out direction other_direction"],
        fourths: Float[Tensor, " leave_out"],
        debiased: bool,
    ) -> Float[Tensor, " leave_out"]:
        """HSIC of all rows, then, to first order, with each group left out. The factor that cancels in CKA is omitted.

        HSIC is quadratic in the tokens, so its value without a group is twice the linear part minus the whole. Squared
        norms stay relative to the mean of all rows, because leaving out a group shifts that mean only by order 1/n.

        Args:
            other: The other layer.
            overlaps: Q'Q_other of all rows, then without each group (for shuffled rows only the former).
            fourths: Sums over tokens of the product of both squared norms, for the same rows.
            debiased: Song et al.'s estimate instead of the plain one; see `linear_cka`.
        """
        num, n = len(overlaps), len(self.squares)
        gradient = self.spread @ overlaps[0] @ other.spread
        products = torch.einsum("gij,ij->g", overlaps, gradient)
        if not debiased:
            return 2 * products - products[0]
        variances = self.variances[:num] * other.variances[0] + self.variances[0] * other.variances[:num]
        off_diagonal = products - n / (n - 2) * fourths
        return 2 * off_diagonal - off_diagonal[0] + (variances - variances[0] / 2) / ((n - 1) * (n - 2))

    @cached_property
    def own_hsic(self) -> list[Float[Tensor, " leave_out"]]:
        """The layer's HSIC with itself: plain, then debiased."""
        fourths = self.sums(self.squares.square())
        return [self.hsic(self, self.grams, fourths, debiased) for debiased in (False, True)]

    @cached_property
    def batches(self) -> list[Tensor]:
        """The states of each group, centred within it: the batches of minibatch CKA."""
        return self.batches_in(torch.arange(len(self.squares)))

    def batches_in(self, order: Int[Tensor, " token"]) -> list[Tensor]:
        """The states in another order, in batches of the same sizes."""
        parts = self.directions[order].split(self.groups.counts.tolist())
        return [centred(part.to(torch.float64) @ self.loadings) for part in parts]

    @cached_property
    def own_batch_hsic(self) -> Float[Tensor, " group"]:
        return batch_hsic(self.batches, self.batches)

    def sums(self, values: Float[Tensor, " token"]) -> Float[Tensor, " leave_out"]:
        """Sum of the values of all tokens, then without each group."""
        of_groups = torch.stack([part.sum() for part in values.split(self.groups.counts.tolist())])
        return torch.cat([of_groups.sum().unsqueeze(0), of_groups.sum() - of_groups])


def batch_hsic(x: list[Tensor], y: list[Tensor]) -> Float[Tensor, " group"]:
    """Debiased HSIC of each batch of both layers, (batch token, width); 0 for batches of too few tokens."""
    terms = [hsic_debiased(a, b) if len(a) >= LEAST_ROWS else 0.0 for a, b in zip(x, y, strict=True)]
    return torch.tensor(terms, dtype=torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LayerPair:
    """The inputs of every similarity of a pair of layers, for all rows and without each group of them."""

    x: LayerSpace
    y: LayerSpace
    overlaps: Float[Tensor, "leave_out direction_x direction_y"]
    """Q_x' Q_y of all rows, then without each group; for shuffled rows only the former."""
    fourths: Float[Tensor, " leave_out"]  # sum over tokens of the product of both squared norms
    order: Int[Tensor, " token"] | None = None  # row of y paired with each row of x, if shuffled

    @classmethod
    def of(cls, x: LayerSpace, y: LayerSpace) -> "LayerPair":
        """The pair of both layers on the same tokens."""
        return cls(x, y, x.groups.covariances(x.directions, y.directions), x.sums(x.squares * y.squares))

    @classmethod
    def shuffled(cls, x: LayerSpace, y: LayerSpace, order: Int[Tensor, " token"]) -> "LayerPair":
        """The pair with the tokens of one layer shuffled: the baseline."""
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
