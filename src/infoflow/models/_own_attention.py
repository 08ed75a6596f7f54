"""Attention that a family computes in its own code, observed at its softmax and at the product of weights and values.

Such code never calls the function that Hugging Face looks up by name. A mode sees every operation inside its modules: a
softmax over the last dimension, the tensors derived from it (dropout, another view, another precision), and the product
with the values. `discover` verifies this by recomputation, and accepts it as attention if the product reaches an output
projection exactly.

A product of batched matrices, (B, H, row, inner) times (B, H, inner, column), may be written in any notation: `matmul`,
`@`, `bmm`, `baddbmm` and `einsum` are all read as letters for two operands and their product.
"""

# B batch, H head, T query token, S key token, d head width

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_SOFTMAX = frozenset({torch.softmax, Tensor.softmax, nn.functional.softmax})
_DROPOUT = frozenset({torch.dropout, nn.functional.dropout})
_MATMUL = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_BADDBMM = (torch.baddbmm, Tensor.baddbmm)
_LETTERS = {3: ("nij", "njk", "nik"), 4: ("bhij", "bhjk", "bhik")}
PRODUCTS = frozenset({*_MATMUL, *_BADDBMM, torch.einsum})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnCall:
    """One attention as computed by its family's code."""

    module: nn.Module  # module with the code
    scores: Tensor  # (B, H, T, S), input of the softmax
    weights: Tensor  # (B, H, T, S), before dropout
    mixed: Tensor  # (B, H, T, S), multiplied by the values
    value: Tensor  # (B, G, S, d)
    context: Tensor  # (B, H, T, d), the product
    query: Tensor | None  # (B, H, T, d) and (B, G, S, d): factors of the scores; None: none
    key: Tensor | None
    dropout: float


Show = Callable[[OwnCall], Tensor | None]
"""Receives a call; may return another context (B, H, T, d) for the code to continue with."""


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
        """Letters shared by both operands and their product: batch and head, or both in one."""
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
        """Both operands as (B, H, row, inner) and (B, H, inner, column); without `num_heads` for a single sentence."""
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


@dataclass(kw_only=True, slots=True, eq=False)
class _Softmax:
    scores: Tensor
    weights: Tensor
    path: tuple[nn.Module, ...]  # running modules, outermost first
    product: Product | None
    dropout: float = 0.0


@contextmanager
def watching_own_attention(modules: Mapping[nn.Module, int | None], show: Show) -> Iterator[None]:
    """Show every attention that these modules (with their numbers of heads) compute inside the block.

    Without a number of heads the batch must have one sentence.
    """
    with ExitStack() as stack:
        mode = _Watch(modules, show)
        for module in modules:
            stack.enter_context(module.register_forward_pre_hook(mode.enter))
            # Also after an error: it may be caught, and the next pass must not start inside this module.
            stack.enter_context(module.register_forward_hook(mode.leave, always_call=True))
        stack.enter_context(mode)
        yield


class _Watch(TorchFunctionMode):
    def __init__(self, num_heads: Mapping[nn.Module, int | None], show: Show) -> None:
        super().__init__()
        self._num_heads, self._show = num_heads, show
        self._running: list[nn.Module] = []
        # By identity; the tensor itself is kept, so that its id is not reused.
        self._made: dict[int, tuple[Tensor, _Softmax | Product]] = {}

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._running.append(module)

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass
        if not self._running:
            self._made.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._running:
            return func(*args, **kwargs)
        product = read_product(func, args, kwargs) if func in PRODUCTS else None
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        if func in _SOFTMAX:
            self._softmax(args, kwargs, result)
        elif product is None:
            self._handed_on(func, args, kwargs, result)
        elif isinstance(softmax := self._of(product.left), _Softmax):
            return self._attention(softmax, product, result)
        else:
            self._keep(result, product)
        return result

    def _of(self, tensor: Any) -> _Softmax | Product | None:
        return self._made.get(id(tensor), (None, None))[1]

    def _keep(self, tensor: Tensor, made: _Softmax | Product) -> None:
        self._made[id(tensor)] = (tensor, made)

    def _softmax(self, args: Any, kwargs: Any, result: Tensor) -> None:
        scores = args[0] if args else kwargs["input"]
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if dim not in (-1, result.dim() - 1):
            return
        made = self._of(scores)
        product = made if isinstance(made, Product) else None
        self._keep(result, _Softmax(scores=scores, weights=result, path=tuple(self._running), product=product))

    def _handed_on(self, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        """A result with as many elements as a tracked input takes that input's place."""
        sources = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor) and id(arg) in self._made]
        found = [self._of(arg) for arg in sources if arg.numel() == result.numel()]
        made = next((one for one in found if isinstance(one, _Softmax)), found[0] if found else None)
        if made is None:
            return
        if func in _DROPOUT and isinstance(made, _Softmax):
            made.dropout = float(kwargs.get("p", args[1] if len(args) > 1 else 0.5))
        self._keep(result, made)

    def _attention(self, softmax: _Softmax, product: Product, result: Tensor) -> Tensor:
        common = [one for one, other in zip(softmax.path, self._running, strict=False) if one is other]
        if not common:
            return result
        num_heads = self._num_heads[common[-1]]
        mixed_BHTS, value_BGSd = product.operands(num_heads)
        query, key = _scored(softmax, num_heads, mixed_BHTS.shape)
        call = OwnCall(
            module=common[-1],
            scores=product.left_like(softmax.scores, num_heads),
            weights=product.left_like(softmax.weights, num_heads),
            mixed=mixed_BHTS,
            value=value_BGSd,
            context=product.result_like(result, num_heads),
            query=query,
            key=key,
            dropout=softmax.dropout,
        )
        replaced = self._show(call)
        return result if replaced is None else product.written(replaced.to(result.dtype)).contiguous()


def _scored(softmax: _Softmax, num_heads: int | None, shape: torch.Size) -> tuple[Tensor | None, Tensor | None]:
    """Queries and keys whose product gave the scores."""
    if softmax.product is None:
        return None, None
    query_BHTd, key_BGdS = softmax.product.operands(num_heads)
    if (*query_BHTd.shape[:3], key_BGdS.shape[3]) != shape:
        return None, None
    return query_BHTd, key_BGdS.mT


def read_product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """The product computed by a call of one of `PRODUCTS`; None if it is not a product of matrices by head."""
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
