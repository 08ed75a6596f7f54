"""How long pieces of work take, side by side."""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def clock() -> float:
    """Of the process with one thread, since other work on the machine disturbs that least."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def best_of(rounds: int, runs: dict[str, Callable[[], T]]) -> tuple[dict[str, float], dict[str, T]]:
    """Best time of each and the last result; by turns, so that a busy minute of the machine falls on all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(rounds):
        for name, run in runs.items():
            started = clock()
            results[name] = run()
            seconds[name].append(clock() - started)
    return {name: min(times) for name, times in seconds.items()}, results
