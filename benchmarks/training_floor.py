"""Training speed of the presets on their own corpus: beside a bare loop, and beside the floor of its matrix products.

    python benchmarks/training_floor.py [--presets quick laptop] [--seconds 4]

For each objective of a preset: source tokens per processor second of infoflow's update; what a bare PyTorch loop over
ready-made batches reaches (no noise to draw, no log); and the floor, which is every matrix product of one such update
(forward and backward, recorded from the dispatcher with shapes, strides and types) done alone. Then the same update at
other batches, precisions and threads, as ratios to the preset's own. Rounds are interleaved; medians are shown.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from infoflow.foundation import SilentDisplay, keep_freed_memory, set_threads, use_display
from infoflow.objectives import AbstractObjective
from infoflow.studies import StudyPlan, Train, graph
from infoflow.training import LengthBucketSampler, TrainConfig, TrainingData, Updater, make_accelerator
from infoflow.training._config import make_optimizer, mixed_precision, resolve_precision

_PRODUCTS = {"aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default"}
_UPDATES = 40  # different batches that are gone through
Step = Callable[[], int]  # one update; returns its source tokens


@dataclass(frozen=True)
class Setting:
    """How one objective of a preset is trained."""

    objective: AbstractObjective
    config: TrainConfig
    data: TrainingData
    fresh: Callable[[], PreTrainedModel]

    def but(self, **settings: Any) -> "Setting":
        return replace(self, config=replace(self.config, **settings))


def ours(setting: Setting, device: str = "cpu") -> Step:
    """The update of `infoflow.training`."""
    model, config = setting.fresh().to(device), setting.config  # type: ignore[arg-type]
    model.train()
    updater = Updater(setting.objective, model, setting.data, config, make_accelerator(device))
    optimizer = make_optimizer(model, config)
    sampler = LengthBucketSampler(setting.data.source.lengths, 0, config.batch_tokens)
    precision = resolve_precision(config.precision, torch.device(device), model_width(model))
    state = {"update": 0}

    def step() -> int:
        state["update"] = state["update"] % _UPDATES + 1
        rows = sampler.rows(state["update"])
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(model, precision, torch.device(device)):
            result = updater.accumulate(updater.batches(rows, 0), rows, state["update"], stop=False)
        optimizer.step()
        return result.source_tokens

    return step


def bare(setting: Setting) -> Step:
    """A bare PyTorch loop over ready-made batches, at the same precision."""
    model, config = setting.fresh(), setting.config
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sampler = LengthBucketSampler(setting.data.source.lengths, 0, config.batch_tokens)
    batches = [
        setting.data.batch(setting.objective, sampler.rows(update), ("benchmark",), 0)
        for update in range(1, _UPDATES + 1)
    ]
    precision = resolve_precision(config.precision, torch.device("cpu"), model_width(model))
    state = {"update": 0}

    def step() -> int:
        batch = batches[state["update"] % _UPDATES]
        state["update"] += 1
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(model, precision, torch.device("cpu")):
            terms = setting.objective.loss(model, batch, batch.noise)
            torch.stack([term.total / max(term.count, 1) for term in terms.values()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return batch.source_tokens

    return step


class _Products(TorchDispatchMode):
    """Records the matrix products that run inside: their function, and their arguments as empty copies."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if str(func) in _PRODUCTS:
            self.calls.append((func, tuple(_like(one) for one in args)))
        return func(*args, **(kwargs or {}))


def _like(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).normal_()


def products(setting: Setting) -> Step:
    """Every matrix product of one of the updates, and nothing else."""
    step = ours(setting)
    step()
    with _Products() as recorded:
        tokens = step()

    def again() -> int:
        with torch.no_grad():
            for func, args in recorded.calls:
                func(*args)
        return tokens

    return again


def model_width(model: Any) -> int:
    config = getattr(model.config, "encoder", model.config)
    return int(config.hidden_size)


def rate(step: Step, seconds: float) -> float:
    """Source tokens per processor second of all threads."""
    step()
    start, tokens = time.process_time(), 0
    while time.process_time() - start < seconds:
        tokens += step()
    return tokens / (time.process_time() - start)


def wall_rate(step: Step, seconds: float) -> float:
    """Source tokens per second on the clock."""
    step()
    start, tokens = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        tokens += step()
    return tokens / (time.perf_counter() - start)


def settings(preset: str) -> list[Setting]:
    """The objectives of a preset, on its corpus."""
    found = []
    with use_display(SilentDisplay()), tempfile.TemporaryDirectory() as folder:
        for stage in graph(replace(StudyPlan.load(preset), seeds=(0,)), folder).of(Train):
            models, recipe = stage.models, stage.recipe
            data, plan = models.training_data(recipe), models.plan
            found.append(
                Setting(
                    objective=models.objective(recipe),
                    config=plan.training,
                    data=data,
                    fresh=lambda models=models, recipe=recipe: models.initial(recipe),
                )
            )
    return found


def compare(setting: Setting, seconds: float, rounds: int) -> str:
    steps = [ours(setting), bare(setting), products(setting)]
    rates = [[rate(step, seconds) for step in steps] for _ in range(rounds)]
    update, loop, floor = (median(column) for column in zip(*rates, strict=True))
    return f"{update:8,.0f} tokens/s  {update / loop:5.2f} of a bare loop  {update / floor:5.2f} of the products' floor"


def variations(setting: Setting, seconds: float, rounds: int) -> dict[str, float]:
    """Tokens per processor second beside the preset's own setting."""
    size = setting.config.batch_tokens
    others = {f"batch {size * factor:g}": setting.but(batch_tokens=int(size * factor)) for factor in (0.25, 0.5, 2, 4)}
    others |= {f"precision {name}": setting.but(precision=name) for name in ("fp32", "bf16")}
    own, steps = ours(setting), {name: ours(other) for name, other in others.items()}
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            ratios[name].append(rate(step, seconds) / rate(own, seconds))
    return {name: median(values) for name, values in ratios.items()}


def two_threads(setting: Setting, seconds: float, rounds: int) -> float:
    """Speed on the clock with two threads beside one: below 2, two trainings side by side are better."""
    step, ratios = ours(setting), []
    for _ in range(rounds):
        torch.set_num_threads(2)
        fast = wall_rate(step, seconds)
        torch.set_num_threads(1)
        ratios.append(fast / wall_rate(step, seconds))
    return median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["quick", "laptop"])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    set_threads(1)
    keep_freed_memory()  # as the command does
    for preset in arguments.presets:
        for setting in settings(preset):
            name = f"{preset}, {setting.objective.name}"
            print(f"{name:<26} {compare(setting, arguments.seconds, arguments.rounds)}", flush=True)
            ratios = variations(setting, arguments.seconds, arguments.rounds)
            ratios["two threads (clock)"] = two_threads(setting, arguments.seconds, arguments.rounds)
            print("   " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items()), flush=True)


if __name__ == "__main__":
    main()
