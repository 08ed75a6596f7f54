"""The states that a block reads and returns, among its arguments and results."""

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def states_read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """The states among a block's arguments: the first one."""
    return args[0] if args else kwargs["hidden_states"]


def reading(args: tuple[Any, ...], kwargs: dict[str, Any], states: Tensor) -> Arguments:
    """A block's arguments with other states."""
    return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})


def states_of(output: Any) -> Tensor:
    """The states that a block returns, alone or first."""
    return output if isinstance(output, Tensor) else output[0]


def with_states(output: Any, states: Tensor) -> Any:
    """A block's result with other states."""
    return states if isinstance(output, Tensor) else (states, *output[1:])


def run_again(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The states from one more run of a block, hidden from hooks and later blocks."""
    own = {name: value.copy() if isinstance(value, UserDict) else value for name, value in kwargs.items()}
    return states_of(block.forward(*args, **own))


def shared_keys(kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Keys and values that later blocks also attend to (Gemma 4), by argument: blocks pass on a dictionary."""
    return {name: dict(value) for name, value in kwargs.items() if isinstance(value, UserDict)}


@contextmanager
def returning(
    module: nn.Module, output: Callable[[], Any], shared: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[None]:
    """Make the module return only `output` and pass on the `shared` keys and values."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        for name, kept in (shared or {}).items():
            if name in kwargs:
                kwargs[name].update(kept)
        return output()

    saved = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if saved is None:
            del module.forward
        else:
            module.forward = saved
