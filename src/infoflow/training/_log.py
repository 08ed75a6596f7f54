"""log.jsonl: one JSON line per `log_every` updates, and one per evaluation."""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infoflow.foundation import atomic_write

from ._update import UpdateResult


class MetricsLog:
    """Append-only log of a run; after a resume it continues as if uninterrupted."""

    def __init__(self, path: Path, after_update: int) -> None:
        self._path = path
        kept = [line for line in read_log(path) if line["update"] <= after_update] if path.exists() else []
        with atomic_write(path) as temporary:
            temporary.write_text("".join(f"{json.dumps(line)}\n" for line in kept), encoding="utf-8")

    def write(self, **fields: Any) -> None:
        """Append one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


class LogWindow:
    """Sums over the updates since the last line.

    Tensors are read only when the line closes, so that an accelerator never waits for the log.
    """

    def __init__(self) -> None:
        self._losses: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._updates, self._tokens, self._norms = 0, 0, 0.0
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def add(self, result: UpdateResult) -> None:
        """Count one update."""
        for name, loss in result.losses.items():
            self._losses[name] = self._losses.get(name, 0.0) + loss
            self._counts[name] = self._counts.get(name, 0) + result.counts[name]
        self._norms = self._norms + result.gradient_norm
        self._updates += 1
        self._tokens += result.source_tokens

    @property
    def finite(self) -> bool:
        """Whether every loss and gradient since the last line is finite."""
        return math.isfinite(float(self._norms)) and all(math.isfinite(float(loss)) for loss in self._losses.values())

    def close(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Means since the last line, with `loss` the weighted sum of the terms, and a reset."""
        losses = {name: float(loss) / max(self._counts[name], 1) for name, loss in self._losses.items()}
        norm = float(self._norms) / max(self._updates, 1)
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        line = {
            "loss": sum(weights[name] * loss for name, loss in losses.items()),
            "losses": losses,
            "gradient_norm": norm,
            "tokens_per_second": round(self._tokens / max(wall, 1e-9)),
            "tokens_per_cpu_second": round(self._tokens / max(cpu, 1e-9)),
        }
        self.__init__()
        return line

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, so that the current line is the same after a resume (rates aside)."""
        losses = {name: float(loss) for name, loss in self._losses.items()}
        return {"losses": losses, "counts": self._counts, "updates": self._updates, "norms": float(self._norms)}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> "LogWindow":
        """The window from `state`."""
        window = cls()
        window._losses, window._counts = dict(state["losses"]), dict(state["counts"])
        window._updates, window._norms = state["updates"], state["norms"]
        return window


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a log.jsonl, without a last line cut off by a kill."""
    lines = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(entry, dict):
            break
        lines.append(entry)
    return lines
