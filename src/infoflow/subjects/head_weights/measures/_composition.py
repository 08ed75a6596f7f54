"""Which heads read what earlier heads write, by the product of their matrices."""

# D width, d head width, N heads below, H heads of a layer

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.models import Model, Stack
from infoflow.results import Column, TableSchema

from ._matrices import HeadMatrices, head_matrices, unknown_layout

VIA = Column("via", "string", "", "query, key or value: through which matrix the later head reads the earlier one")
HEAD_COMPOSITION = TableSchema(
    name="head_composition",
    version=1,
    description="How much each head of self-attention reads of what earlier heads of its stack write, by their "
    "weights. For each head and each of query, key and value, only the earlier heads with the highest scores are "
    "listed. Weights are not a sample, so these numbers have no interval.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "block of the head that reads, from 0"),
        Column("head", "int64", "", "the head that reads, from 0"),
        VIA,
        Column("earlier_layer", "int64", "", "block of the head that writes, from 0"),
        Column("earlier_head", "int64", "", "the head that writes, from 0"),
        Column("value", "float64", "share", "Frobenius norm of the product over the product of norms"),
        Column("baseline", "float64", "share", "root mean square over random rotations between the two matrices"),
        Column("z", "float64", "standard deviations", "squared value minus the mean square over random rotations"),
        Column("mean", "float64", "share", "mean of the value over all earlier heads, with the same reader and `via`"),
    ),
)


class HeadComposition(Intervention):
    r"""Composition of each head with the heads below it: Frobenius norm of their product.

    $$ c_V = \frac{\lVert W_{OV}^1 W_{OV}^2 \rVert_F}{\lVert W_{OV}^1 \rVert_F \lVert W_{OV}^2 \rVert_F}, \qquad
       c_Q, c_K \text{ with } W_Q^2 W_K^{2\top} \text{ and } W_K^2 W_Q^{2\top} \text{ in place of } W_{OV}^2 $$

    $W_{OV} = W_V W_O$, for states as rows. The control keeps the singular values of both matrices and rotates one at
    random: the mean of the square is then 1/D exactly, and its variance about
    $2 \sum s_1^4 \sum s_2^4 / (D \lVert W^1 \rVert^2 \lVert W^2 \rVert^2)^2$.

    The gain and centring of the norm before the later head are folded in. Left out: biases, the division by norms,
    norms between the two heads (post-norm models), rotary positions and norms of queries and keys, and
    cross-attention.

    Args:
        strongest: Number of earlier heads in the table, for each head and `via`.

    Source: [@elhage2021]; the exact control is ours.
    """

    table: ClassVar[TableSchema] = HEAD_COMPOSITION

    def __init__(self, strongest: int = 3) -> None:
        if strongest < 1:
            raise UserError(f"strongest must be at least 1. Got {strongest}.")
        self.strongest = strongest

    def refusal(self, model: Model) -> str | None:
        return unknown_layout(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        return self.of(reader.model)

    def of(self, model: Model) -> pd.DataFrame:
        """The table of a model; it needs no text.

        Raises:
            NothingToRead: No stack has two layers of self-attention.
            UserError: Its heads have no such matrices.
        """
        rows = [row for one in model.anatomy.stacks if "self" in one.kinds for row in self._of_stack(model, one)]
        if not rows:
            raise NothingToRead(f"{model.name} has no head of self-attention below another one")
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _of_stack(self, model: Model, stack: Stack) -> Iterator[dict[str, Any]]:
        below: list[_Factor] = []
        by_layer: dict[int, list[HeadMatrices]] = {}
        for head in head_matrices(model, stack):
            by_layer.setdefault(head.layer, []).append(head)
        for heads in by_layer.values():
            if below:
                written = _stacked([one.matrix for one in below])
                for head in heads:
                    for via, reading in _readings(head).items():
                        place = {"stack": stack.name, "layer": head.layer, "head": head.head, VIA: via}
                        yield from ({**place, **row} for row in self._rows(below, written, reading))
            found = [_Factor.of(head.layer, head.head, _r(head.value) @ head.output) for head in heads]
            below += [one for one in found if one.square > 0]

    def _rows(
        self, below: "list[_Factor]", written: Float[Tensor, "N d D"], reading: Float[Tensor, "D d"]
    ) -> Iterator[dict[str, Any]]:
        width, own = len(reading), _Factor.of(0, 0, reading.T)
        sizes = torch.tensor([one.square for one in below]).double() * own.square
        if own.square == 0:  # nothing is read
            return
        squares = ((written @ reading).square().sum((1, 2)) / sizes).numpy()
        spread = np.sqrt([2 * one.fourth * own.fourth for one in below]) / (width * sizes.numpy())
        z = (squares - 1 / width) / spread
        for number in np.argsort(-squares, kind="stable")[: self.strongest].tolist():
            yield {
                "earlier_layer": below[number].layer,
                "earlier_head": below[number].head,
                "value": squares[number] ** 0.5,
                "baseline": width**-0.5,
                "z": z[number],
                "mean": float(np.sqrt(squares).mean()),
            }


class _Factor:
    """A matrix (d, D) of one head, with the sums of its squared singular values and of their squares."""

    __slots__ = ("fourth", "head", "layer", "matrix", "square")

    @classmethod
    def of(cls, layer: int, head: int, matrix: Float[Tensor, "d D"]) -> "_Factor":
        self = cls()
        gram = matrix @ matrix.T
        self.layer, self.head, self.matrix = layer, head, matrix
        self.square, self.fourth = float(gram.trace()), float(gram.square().sum())
        return self


def _readings(head: HeadMatrices) -> dict[str, Float[Tensor, "D d"]]:
    """For each way to read, a matrix M such that ‖W M‖ is the norm of W times the head's QK or OV circuit."""
    return {
        "query": head.query @ _r(head.key).T,
        "key": head.key @ _r(head.query).T,
        "value": head.value @ _r(head.output.T).T,
    }


def _r(matrix: Float[Tensor, "D d"]) -> Float[Tensor, "d d"]:
    """A square factor with the same inner products: RᵀR = MᵀM."""
    return torch.linalg.qr(matrix).R


def _stacked(matrices: list[Tensor]) -> Float[Tensor, "N d D"]:
    """All matrices; those with fewer rows are filled with zeros."""
    most = max(len(one) for one in matrices)
    return torch.stack([torch.nn.functional.pad(one, (0, 0, 0, most - len(one))) for one in matrices])
