"""A pretended second device: CPU tensors that say they are elsewhere, and refuse to be mixed as a GPU's do."""

from contextlib import contextmanager
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

DEVICE = torch.device("lazy", 1)  # never used otherwise; torch has a guard for it, so it can be indexed
_ATEN = torch.ops.aten
_MIXED = (_ATEN.copy_.default, _ATEN._to_copy.default)
_INDEXED = (_ATEN.index.Tensor, _ATEN.index_put_.default, _ATEN.index_put.default, _ATEN._index_put_impl_.default)


class Elsewhere(torch.Tensor):
    """A tensor of the second device; `held` has its numbers."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Elsewhere":
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=DEVICE,
        )  # fmt: skip
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Also sees what makes tensors, and what copies others to the second device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextmanager
def second_device():
    """Inside the block, `DEVICE` can be used."""
    with _Factories():
        yield


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    found: list[torch.Tensor] = []
    tree_map_only(torch.Tensor, found.append, (args, kwargs))
    elsewhere = [isinstance(one, Elsewhere) for one in found]
    there = any(elsewhere)
    if func not in _MIXED:
        checked = found[:1] if func in _INDEXED else found  # indices of tensors elsewhere may be on the CPU
        mixed = {isinstance(one, Elsewhere) for one in checked if one.dim() or isinstance(one, Elsewhere)}
        if len(mixed) > 1 or (func in _INDEXED and there and not elsewhere[0]):
            raise RuntimeError(f"Expected all tensors to be on the same device, in {func}")
    if "device" in kwargs and kwargs["device"] is not None:
        there = torch.device(kwargs["device"]) == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain_args, plain = tree_map_only(Elsewhere, lambda one: one.held, (args, kwargs))
    result = func(*plain_args, **plain)
    if result is None or not func._schema.returns:
        return None
    if func._schema.is_mutable:  # in place
        return args[0]
    return tree_map_only(torch.Tensor, Elsewhere, result) if there else result


def place(module: torch.nn.Module, blocks: list[str]) -> None:
    """Put these blocks on the second device, as accelerate's `dispatch_model` would."""
    home = torch.device("cpu")
    names = [name for name, child in module.named_modules() if not list(child.children())]
    for name in names:
        child, there = module.get_submodule(name), any(name.startswith(f"{block}.") for block in blocks)
        for tensors in (child._parameters, child._buffers):
            for key, value in tensors.items() if there else ():
                held = None if value is None else Elsewhere(value.detach())
                tensors[key] = torch.nn.Parameter(held) if tensors is child._parameters and held is not None else held
        add_hook_to_module(child, _placed(DEVICE if there else home))
    for name in blocks:
        add_hook_to_module(module.get_submodule(name), _placed(DEVICE))
    add_hook_to_module(module, _placed(home, same=True))


def _placed(device: torch.device, same: bool = False) -> AlignDevicesHook:
    hook = AlignDevicesHook(execution_device=device, io_same_device=same)
    hook.init_hook = lambda module: module
    return hook
