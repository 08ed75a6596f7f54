"""Products of batched matrices in any notation: (B, H, row, inner) times (B, H, inner, column).

`matmul`, `@`, `bmm`, `baddbmm` and `einsum` share one form: letters of two operands and of their product.
"""

# B batch, H head

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_MATMUL = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_BADDBMM = (torch.baddbmm, Tensor.baddbmm)
_LETTERS = {3: ("nij", "njk", "nik"), 4: ("bhij", "bhjk", "bhik")}
PRODUCTS = frozenset({*_MATMUL, *_BADDBMM, torch.einsum})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Product:
    """Two operands and the roles of their dimensions.

    >>> heads = torch.ones(2, 3, 4, 5), torch.ones(6, 2, 3, 5)
    >>> product = read_product(torch.einsum, ("bhij,kbhj->kbhi", *heads), {})
    >>> product.batch, product.row, product.inner, product.column
    ('bh', 'i', 'j', 'k')
    >>> [tuple(one.shape) for one in product.operands(num_heads=None)]
    [(2, 3, 4, 5), (2, 3, 5, 6)]
    """

    left: Tensor
    right: Tensor
    letters: tuple[str, str, str]  # of left, right and product

    @property
    def batch(self) -> str:
        """Letters shared by all three: batch and head, or both in one."""
        return "".join(letter for letter in self.letters[0] if all(letter in part for part in self.letters))

    @property
    def row(self) -> str:
        return self._in(0, 2)

    @property
    def inner(self) -> str:
        return self._in(0, 1)

    @property
    def column(self) -> str:
        return self._in(1, 2)

    @property
    def is_plain(self) -> bool:
        """Whether it is one batch of matrices by head, without other sums or repetitions."""
        parts = (self.batch, self.row, self.inner, self.column)
        return len(self.batch) in (1, 2) and all(len(part) == 1 for part in parts[1:])

    def _in(self, first: int, second: int) -> str:
        (other,) = {0, 1, 2} - {first, second}
        shared = set(self.letters[first]) & set(self.letters[second]) - set(self.letters[other])
        return "".join(sorted(shared))

    def operands(self, num_heads: int | None) -> tuple[Tensor, Tensor]:
        """Both as (B, H, row, inner) and (B, H, inner, column); `num_heads` None means a batch of one sentence."""
        return self.left_like(self.left, num_heads), self._ordered(
            self.right, self.letters[1], self.batch + self.inner + self.column, num_heads
        )

    def left_like(self, tensor: Tensor, num_heads: int | None) -> Tensor:
        """(B, H, row, inner) of a tensor with the elements and order of the left operand."""
        order = self.batch + self.row + self.inner
        return self._ordered(tensor.reshape(self.left.shape), self.letters[0], order, num_heads)

    def result_like(self, product: Tensor, num_heads: int | None) -> Tensor:
        """(B, H, row, column) of the computed product."""
        return self._ordered(product, self.letters[2], self.batch + self.row + self.column, num_heads)

    def written(self, product_BHij: Tensor) -> Tensor:
        """A product (B, H, row, column) in its original order: the inverse of `result_like`."""
        if len(self.batch) == 1:
            product_BHij = product_BHij.flatten(0, 1)
        order = self.batch + self.row + self.column
        return product_BHij.permute([order.index(letter) for letter in self.letters[2]])

    def _ordered(self, tensor: Tensor, letters: str, order: str, num_heads: int | None) -> Tensor:
        ordered = tensor.permute([letters.index(letter) for letter in order])
        if len(self.batch) == 2:
            return ordered
        return ordered.unflatten(0, (1, -1) if num_heads is None else (-1, num_heads))


def read_product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """The product computed by a call of one of `PRODUCTS`; None if it is not one of matrices by head."""
    if func is torch.einsum:
        found = _einsum(args)
    elif func in _BADDBMM:
        left, right = (kwargs.get(name, args[place] if len(args) > place else None) for name, place in _BATCHES)
        found = _matrices(left, right)
    else:
        found = _matrices(args[0], args[1]) if len(args) > 1 else None
    return found if found is not None and found.is_plain else None


_BATCHES = (("batch1", 1), ("batch2", 2))


def _matrices(left: Any, right: Any) -> Product | None:
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)) or left.dim() != right.dim():
        return None
    letters = _LETTERS.get(left.dim())
    return None if letters is None else Product(left=left, right=right, letters=letters)


def _einsum(args: Sequence[Any]) -> Product | None:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation or "." in equation:
        return None
    terms, result = equation.replace(" ", "").split("->")
    first, second = terms.split(",")
    return Product(left=operands[0], right=operands[1], letters=(first, second, result))
