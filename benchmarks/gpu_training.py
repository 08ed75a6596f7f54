"""Training on a GPU: how fast, with which batch and which precision, how far from the card, and in how much memory?

    python benchmarks/gpu_training.py [--plan paper] [--batches 1024 4096 16384] [--precisions bf16 fp32] [--csv FILE]

For each objective of a plan, each batch and precision: source tokens per second of infoflow's update, its share of the
bfloat16 matrix products that this card does in the same run (operations counted on the training's own batches), the
peak of allocated memory, and what the plan's updates would take by themselves. Stages of a study that share one card
(`[engine] per_gpu`) are as many processes: start this file several times and add up.
"""

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch
from training_floor import Setting, Step, ours, settings

from infoflow.foundation import atomic_write, set_threads
from infoflow.training import count_training_flops

_WARM_UP = 8  # updates before the clock: kernels are chosen, memory is taken
_WIDTH = 8192  # of the square matrices whose product stands for the card


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Of one objective with one batch and precision."""

    objective: str
    precision: str
    batch_tokens: int  # padded source tokens of an update
    milliseconds: float  # of an update
    tokens_per_second: float  # source tokens
    share: float  # operations per second beside those of the card's own products
    gibibytes: float  # allocated at most
    minutes: float  # of the plan's updates with this batch


def card_rate(seconds: float = 1.0) -> float:
    """Operations per second of a large product of random bfloat16 matrices."""
    left, right = torch.randn(2, _WIDTH, _WIDTH, device="cuda", dtype=torch.bfloat16)
    torch.mm(left, right)
    torch.cuda.synchronize()
    start, products = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            torch.mm(left, right)
        torch.cuda.synchronize()
        products += 20
    return products * 2 * _WIDTH**3 / (time.perf_counter() - start)


def timed(step: Step, seconds: float) -> tuple[float, float]:
    """Seconds and source tokens of an update."""
    for _ in range(_WARM_UP):
        step()
    torch.cuda.synchronize()
    start, updates, tokens = time.perf_counter(), 0, 0
    while time.perf_counter() - start < seconds:
        tokens += step()
        updates += 1
    torch.cuda.synchronize()
    passed = time.perf_counter() - start
    return passed / updates, tokens / updates


def speed(setting: Setting, seconds: float, card: float) -> Speed:
    torch.cuda.reset_peak_memory_stats()
    per_update, tokens = timed(ours(setting, "cuda"), seconds)
    config = setting.config
    flops = count_training_flops(setting.objective, setting.but(updates=4).config, setting.data, setting.fresh())
    return Speed(
        objective=setting.objective.name,
        precision=config.precision,
        batch_tokens=config.batch_tokens,
        milliseconds=1e3 * per_update,
        tokens_per_second=tokens / per_update,
        share=flops.total / 4 / per_update / card,
        gibibytes=torch.cuda.max_memory_allocated() / 2**30,
        minutes=config.updates * per_update / 60,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", default="paper", help="a preset, or a plan's file")
    parser.add_argument("--batches", nargs="+", type=int, default=[1024, 4096, 16384])
    parser.add_argument("--precisions", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    parser.add_argument("--objectives", nargs="+", help="of the plan; all without it")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU that torch can use; `training_floor.py` is for CPUs.")
    set_threads(1)
    card, found = card_rate(), []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {card / 1e12:.0f} TFLOP/s", flush=True)
    for setting in settings(arguments.plan):
        if arguments.objectives and setting.objective.name not in arguments.objectives:
            continue
        for precision in arguments.precisions:
            for batch in arguments.batches:
                own = setting.but(precision=precision, batch_tokens=batch, micro_tokens=8 * batch)
                found.append(speed(own, arguments.seconds, card))
                print(asdict(found[-1]), flush=True)
    if arguments.csv:
        with atomic_write(arguments.csv) as temporary:
            pd.DataFrame(map(asdict, found)).to_csv(temporary, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
