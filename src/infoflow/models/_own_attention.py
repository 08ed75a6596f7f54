"""Attention that a family computes in its own code, observed at its softmax and at the product of weights and values.

Such code never calls the function that Hugging Face looks up by name. A mode sees every operation inside its modules: a
softmax over the last dimension, the derived tensors (dropout, another view, another precision), and the product with
the values. `discover` verifies this by recomputation, and accepts it as attention if the product reaches an output
projection exactly.
"""

# B batch, H head, T query token, S key token, d head width

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ._products import PRODUCTS, Product, read_product

_SOFTMAX = frozenset({torch.softmax, Tensor.softmax, nn.functional.softmax})
_DROPOUT = frozenset({torch.dropout, nn.functional.dropout})


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


@dataclass(kw_only=True, slots=True, eq=False)
class _Softmax:
    scores: Tensor
    weights: Tensor
    path: tuple[nn.Module, ...]  # running modules, outermost first
    product: Product | None
    dropout: float = 0.0


@contextmanager
def watching_own_attention(modules: Mapping[nn.Module, int | None], show: Show) -> Iterator[None]:
    """Show every attention that these modules (with their number of heads) compute inside the block.

    Without a number of heads the batch must have one sentence.
    """
    mode = _Watch(modules, show)
    with ExitStack() as stack:
        mode.follow(modules, stack)
        stack.enter_context(mode)
        yield


class _Watch(TorchFunctionMode):
    def __init__(self, num_heads: Mapping[nn.Module, int | None], show: Show) -> None:
        super().__init__()
        self._num_heads, self._show = num_heads, show
        self._running: list[nn.Module] = []
        # By identity; the tensor itself is kept, so that its id is not reused.
        self._made: dict[int, tuple[Tensor, _Softmax | Product]] = {}

    def follow(self, modules: Iterable[nn.Module], stack: ExitStack) -> None:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(self._enter).remove)
            # Also after an error: it may be caught, and the next pass must not start inside this module.
            stack.callback(module.register_forward_hook(self._leave, always_call=True).remove)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._running.append(module)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
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
        """A result with as many elements as a tracked input tensor replaces it."""
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
