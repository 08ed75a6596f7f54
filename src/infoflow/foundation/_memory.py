"""How much memory this process may still allocate."""

import os
from pathlib import Path

from ._errors import UserError
from ._platform import memory_on_windows

_GIGABYTE = 1e9


def available_memory() -> int | None:
    """Bytes left by the machine, a container and this shell's limits; None if unknown."""
    told = [_of_machine(), _of_container(), _of_limits(), memory_on_windows()]
    return min((size for size in told if size is not None), default=None)


def require_memory(size: float, what: str, advice: str) -> None:
    """Refuse work that would run out of memory halfway.

    Args:
        size: Minimum number of bytes.
        what: For the message: what needs them and how they add up.
        advice: Remedy for the message.

    Raises:
        UserError: Fewer bytes are available.
    """
    available = available_memory()
    if available is not None and size > available:
        raise UserError(
            f"{what}: at least {size / _GIGABYTE:,.1f} GB of memory. This machine has {available / _GIGABYTE:,.1f} GB "
            f"available. {advice}"
        )


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        entries = dict(line.split(":", 1) for line in lines)
        return (int(entries["MemAvailable"].split()[0]) + int(entries["SwapFree"].split()[0])) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_container() -> int | None:
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            numbers = [int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")) for name in (most, used)]
        except (OSError, ValueError):  # no such file, or "max"
            continue
        return max(numbers[0] - numbers[1], 0)
    return None


def _of_limits() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if most == resource.RLIM_INFINITY else most
