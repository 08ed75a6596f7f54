"""Several processes started by `torchrun` or `accelerate launch`: ranks, and exchange of results."""

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch.distributed as dist

from infoflow.foundation import UserError, launched

from ._heartbeat import Heartbeat

T = TypeVar("T")

_MEETING = timedelta(minutes=5)
_PATIENCE = timedelta(hours=12)  # one process may compute a slow measure while the others wait (30 minutes by default)


def processes() -> tuple[int, int]:
    """(rank, number of processes); joins the process group (gloo) that the launcher's environment describes.

    Raises:
        UserError: The environment is invalid, or some processes never joined.
    """
    if not dist.is_available():
        return 0, 1
    if not dist.is_initialized():
        rank, size = launched()
        if size == 1:
            return 0, 1
        _join(rank, size)
    _watch()
    return dist.get_rank(), dist.get_world_size()


def _join(rank: int, size: int) -> None:
    """Meet the others in the launcher's store within minutes, then form the group, whose timeout is hours."""
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=_MEETING))
        store.set(f"infoflow/here/{rank}", "1")
        store.wait([f"infoflow/here/{other}" for other in range(size)], _MEETING)
    except (RuntimeError, ValueError, OSError) as error:  # torch's DistError is a RuntimeError
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"The {size} processes of this run must meet at {where} within {_MEETING.seconds // 60} minutes. Process "
            f"{rank} did not meet them all: {reason}.\nStart them together with torchrun, and check address and port."
        ) from None
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_PATIENCE)


@cache
def _watch() -> None:
    """Detect processes that stop, and leave the group when the interpreter ends."""
    heartbeat = None
    if dist.get_world_size() > 1:
        store = dist.distributed_c10d._get_default_store()
        heartbeat = Heartbeat(store, dist.get_rank(), dist.get_world_size())
        heartbeat.start()
    atexit.register(_leave, heartbeat)


def _leave(heartbeat: Heartbeat | None) -> None:
    """Leave the group, whose threads may otherwise abort the process when the interpreter ends."""
    if heartbeat is not None:
        heartbeat.leave()
    if dist.is_initialized():
        dist.destroy_process_group()


def exchange(state: Any) -> list[Any]:
    """Every process's state, in rank order, on every process."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


def is_first() -> bool:
    """Whether this process writes the common results."""
    return processes()[0] == 0


def agree(value: Any) -> Any:
    """The first process's `value`, on every process."""
    if processes()[1] == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def wait_for_all() -> None:
    """Return once every process has called this."""
    if processes()[1] > 1:
        dist.barrier()


def first_then_others(load: Callable[[], T]) -> T:
    """`load()` on every process, first on the first one alone, so that the others find its cache."""
    if is_first():
        loaded = load()
    wait_for_all()
    if not is_first():
        loaded = load()
    return loaded
