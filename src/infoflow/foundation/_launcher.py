"""The variables that a launcher (`torchrun`, `accelerate launch`) sets for each process, read in one place."""

import os

from ._errors import UserError

_MOST = 1_000_000


def launched() -> tuple[int, int]:
    """(rank, number of processes) of this process; (0, 1) without a launcher.

    Raises:
        UserError: The launcher's variables are incomplete or invalid.
    """
    if not os.environ.get("RANK") and not os.environ.get("WORLD_SIZE"):
        return 0, 1
    rank, size = _number("RANK", 0, _MOST), _number("WORLD_SIZE", 1, _MOST)
    if rank >= size:
        raise UserError(f"RANK must be below WORLD_SIZE. Got {rank} of {size}. {_ADVICE}")
    if size > 1:
        _number("MASTER_PORT", 0, 65535)
        if not os.environ.get("MASTER_ADDR"):
            raise UserError(f"MASTER_ADDR must name the machine of the first process. It is not set. {_ADVICE}")
    return rank, size


def local_rank() -> int:
    """Number of this process, hence of its GPU, among those on its machine; the rank if the launcher does not set it.

    Raises:
        UserError: The variable is no number.
    """
    return _number("LOCAL_RANK", 0, _MOST) if os.environ.get("LOCAL_RANK") else launched()[0]


_ADVICE = "Start all processes with torchrun, or unset RANK and WORLD_SIZE for one process."


def _number(name: str, least: int, most: int) -> int:
    text = os.environ.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        got = f"Got {text[:40]}." if text else "It is not set."
        raise UserError(f"{name}, which torchrun sets, must be a number from {least} to {most:,}. {got} {_ADVICE}")
    return int(text)
