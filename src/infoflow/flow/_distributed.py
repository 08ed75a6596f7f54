"""Several processes, started by `torchrun` or `accelerate launch`: who am I, and what have the others seen?"""

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")

_PATIENCE = timedelta(hours=12)  # one process may compute a slow measure while the others wait (30 minutes by default)


def processes() -> tuple[int, int]:
    """(rank, number of processes); joins the process group (gloo) that the launcher's environment describes."""
    if not dist.is_available():
        return 0, 1
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return 0, 1
        dist.init_process_group("gloo", timeout=_PATIENCE)
    _leave_at_exit()
    return dist.get_rank(), dist.get_world_size()


@cache
def _leave_at_exit() -> None:
    """The threads of a group that is still there when the interpreter ends now and then abort the process."""
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)


def exchange(state: Any) -> list[Any]:
    """Every process's state, in rank order, on every process."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


def is_first() -> bool:
    """Whether this process writes what all have computed."""
    return processes()[0] == 0


def agree(value: Any) -> Any:
    """The first process's `value`, on every process; where there is one process, `value`."""
    if processes()[1] == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def wait_for_all() -> None:
    """Return when every process has come here."""
    if processes()[1] > 1:
        dist.barrier()


def first_then_others(load: Callable[[], T]) -> T:
    """`load()` on every process, the first one alone before the others: what it caches, they find."""
    if is_first():
        loaded = load()
    wait_for_all()
    if not is_first():
        loaded = load()
    return loaded
