"""Stages for tests: each is a JSON file in the run folder that says what it does."""

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENTRY = "toy_stages:stage_of"


@dataclass(frozen=True, kw_only=True)
class Toy:
    """Does `action` and leaves a file named by its key."""

    folder: str
    key: str
    needs: tuple[str, ...] = ()
    cost: float = 1.0
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    action: str = "nothing"
    argument: Any = None

    @property
    def label(self) -> str:
        return f"{self.action} {self.key}"

    @property
    def result(self) -> Path:
        return Path(self.folder) / f"{self.key}.result"

    def is_done(self) -> bool:
        return self.result.exists()

    def run(self) -> dict[str, Any]:
        facts = ACTIONS[self.action](self)
        for need in self.needs:
            assert (Path(self.folder) / f"{need}.result").exists(), f"{need} is missing"
        self.result.write_text(json.dumps(facts))
        return facts


def stage_of(folder: str, key: str) -> Toy:
    written = json.loads((Path(folder) / f"{key}.stage").read_text())
    return Toy(**{**written, "needs": tuple(written["needs"])})


def written(graph: Sequence[Toy]) -> Sequence[Toy]:
    """Put the stages where `stage_of` finds them."""
    for stage in graph:
        (Path(stage.folder) / f"{stage.key}.stage").write_text(json.dumps(asdict(stage)))
    return graph


def _nothing(stage: Toy) -> dict[str, Any]:
    return {}


def _sleep(stage: Toy) -> dict[str, Any]:
    time.sleep(stage.argument)
    return {}


def _count(stage: Toy) -> dict[str, Any]:
    """Step through a sequence `argument` times, .01 s each, saving each: updates of training."""
    from infoflow.foundation import current_display, stop_request

    path = Path(stage.folder) / f"{stage.key}.state"
    state = json.loads(path.read_text()) if path.exists() else {"update": 0, "value": 1, "starts": 0}
    state["starts"] += 1
    with stop_request() as request, current_display().progress("count", stage.argument, "updates") as progress:
        while state["update"] < stage.argument:
            stop = request.received
            time.sleep(0.01)
            state["update"] += 1
            state["value"] = state["value"] * 6364136223846793005 % 2**61 + state["update"]
            progress.advance(1, value=state["value"])
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(state))
            partial.replace(path)
            if stop:
                raise KeyboardInterrupt(f"Stopped after update {state['update']}.")
    return {"value": state["value"], "updates": state["update"]}


def counted(updates: int) -> int:
    """What `count` ends with."""
    value = 1
    for update in range(1, updates + 1):
        value = value * 6364136223846793005 % 2**61 + update
    return value


def _user_error(stage: Toy) -> dict[str, Any]:
    from infoflow.foundation import UserError

    raise UserError(str(stage.argument))


def _bug(stage: Toy) -> dict[str, Any]:
    print("before the bug")
    raise ValueError(str(stage.argument))


def _full(stage: Toy) -> dict[str, Any]:
    with Path("/dev/full").open("w") as file:
        file.write("a")
        file.flush()
    return {}


def _fill(stage: Toy) -> dict[str, Any]:
    """Leave no byte free, so that no log can be written either; then write its result."""
    from infoflow.foundation import atomic_write

    path = Path(stage.folder) / f"{stage.key}.large"
    size = stage.argument
    while size:
        try:
            with path.open("ab", buffering=0) as file:
                file.write(b"x" * size)
        except OSError:
            size //= 2
    with suppress(OSError):
        while os.write(1, b"x" * 100):  # the rest of the log's last page
            pass
    with atomic_write(path) as temporary, temporary.open("ab", buffering=0) as file:
        file.write(b"x" * stage.argument)
    return {}


def _die(stage: Toy) -> dict[str, Any]:
    """Kill itself, `argument` times in all."""
    path = Path(stage.folder) / f"{stage.key}.deaths"
    deaths = len(path.read_text()) if path.exists() else 0
    if deaths < stage.argument:
        path.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"deaths": deaths}


def _deaf(stage: Toy) -> dict[str, Any]:
    """Hear no request to stop for `argument` seconds."""
    end = time.monotonic() + stage.argument
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except KeyboardInterrupt:
            continue
    return {}


def _train(stage: Toy) -> dict[str, Any]:
    """Updates of a small network; the digest of its weights."""
    import hashlib

    import torch

    torch.manual_seed(0)
    layers = torch.nn.Linear(300, 500), torch.nn.ReLU(), torch.nn.Linear(500, 1)
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(network.parameters())
    for _ in range(stage.argument):
        optimizer.zero_grad()
        network(torch.randn(400, 300)).square().mean().backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    return {"sha": hashlib.sha256(weights.numpy().tobytes()).hexdigest(), "threads": torch.get_num_threads()}


def _look(stage: Toy) -> dict[str, Any]:
    """Tell about the process."""
    if stage.argument:
        time.sleep(stage.argument)
    return {
        "process": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "main": getattr(__import__("__main__"), "__file__", ""),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


ACTIONS = {
    "nothing": _nothing,
    "sleep": _sleep,
    "count": _count,
    "user error": _user_error,
    "bug": _bug,
    "full": _full,
    "fill": _fill,
    "die": _die,
    "deaf": _deaf,
    "train": _train,
    "look": _look,
}
