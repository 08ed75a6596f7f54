"""Memory that is freed and asked for again in a moment, as each layer of a model does, stays with the process."""

import ctypes
import sys
from contextlib import suppress

# glibc's `mallopt`: what is larger is mapped by itself and given back at once; what lies free on top is kept up to.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_LARGEST = 32 << 20
_KEPT = 512 << 20


def keep_freed_memory() -> bool:
    """Let this process keep up to 512 MB that it has freed; returns whether its allocator could be told (glibc's can).

    A tensor of some megabytes is else mapped afresh for each operation, and the system fills each of its pages with
    zeros: on one core of an AMD EPYC that took as long as the products of a small model, and nothing else is changed.
    """
    if sys.platform != "linux":
        return False
    with suppress(OSError, AttributeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        return bool(set_option(_MMAP_THRESHOLD, _LARGEST)) and bool(set_option(_TRIM_THRESHOLD, _KEPT))
    return False
