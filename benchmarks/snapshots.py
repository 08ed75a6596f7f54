"""What keeping checkpoints by the default schedule costs a training.

    python benchmarks/snapshots.py [--updates 60] [--rounds 5] [--width 128] [--length 5000]

Each round trains the same masked LM three times (same seed, one thread): without snapshots, with the default schedule,
and without again, which shows what of a difference is noise. Ratios are to the first of the round, medians over rounds:
CPU time, and wall time, in which waiting for the disk is included. The final weights must be equal.

A short training has as many snapshots as a long one, so the share of a training of `--length` updates is that of what
one snapshot and one update take. Time in the writer is taken apart, since on a busy machine two trainings differ by
more than all snapshots together. The limit of the project is 1.01 for a training as long as a study's.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.foundation import file_digest
from infoflow.objectives import MaskedLM, Vocabulary
from infoflow.training import (
    DEFAULT_SCHEDULE,
    ModelConfig,
    SnapshotPlan,
    TrainConfig,
    TrainingData,
    build_models,
    checkpoint_steps,
    train,
)
from infoflow.training import _train as _train_module
from infoflow.training._snapshots import SnapshotWriter

Case = SnapshotPlan | None


@dataclass(frozen=True)
class Took:
    """One training, and what of it was spent on snapshots."""

    cpu: float  # seconds
    wall: float
    snapshots_cpu: float
    snapshots_wall: float
    weights: str  # SHA-256


class Timed(SnapshotWriter):
    """A writer that counts its time."""

    cpu, wall = 0.0, 0.0

    def write(self, *arguments, **options) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        super().write(*arguments, **options)
        Timed.cpu, Timed.wall = Timed.cpu + time.process_time() - cpu, Timed.wall + time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--length", type=int, default=5000, help="updates of the training whose share is told")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    _train_module.SnapshotWriter = Timed
    data, vocabulary = _data()
    shape = ModelConfig(width=arguments.width, layers=6, heads=8, feedforward=4 * arguments.width)
    config = TrainConfig(
        updates=arguments.updates, batch_tokens=arguments.tokens, precision="fp32", device="cpu", save_every=0
    )
    plan = SnapshotPlan(steps=lambda c: checkpoint_steps(DEFAULT_SCHEDULE, c.updates, c.warmup_updates))
    cases: dict[str, Case] = {"without": None, "default": plan, "without again": None}
    rounds = [_round(cases, config, data, shape, vocabulary) for _ in range(arguments.rounds)]
    parameters = sum(p.numel() for p in _model(shape, vocabulary).parameters())
    number = len(plan.steps(config))
    print(f"{parameters:,} parameters, {arguments.updates} updates, {number} snapshots, {arguments.rounds} rounds")
    print("                 CPU ratio   wall ratio")
    for name in cases:
        cpu, wall = (
            median(getattr(one[name], clock) / getattr(one["without"], clock) for one in rounds)
            for clock in ("cpu", "wall")
        )
        print(f"{name:15} {cpu:10.3f} {wall:12.3f}")
    for clock in ("cpu", "wall"):
        _tell_long(clock, rounds, number, arguments.updates, arguments.length)
    equal = len({took.weights for one in rounds for took in one.values()}) == 1
    print(f"final weights are {'equal' if equal else 'NOT EQUAL'} in all {len(cases) * len(rounds)} trainings")


def _round(cases: dict[str, Case], *settings) -> dict[str, Took]:
    return {name: _train(plan, *settings) for name, plan in cases.items()}


def _train(plan: Case, config: TrainConfig, data: TrainingData, shape: ModelConfig, vocabulary: Vocabulary) -> Took:
    model = _model(shape, vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        Timed.cpu, Timed.wall = 0.0, 0.0
        cpu, wall = time.process_time(), time.perf_counter()
        result = train(MaskedLM(), config, data, model, Path(folder), snapshots=plan)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return Took(cpu, wall, Timed.cpu, Timed.wall, file_digest(result.model / "model.safetensors"))


def _tell_long(clock: str, rounds: list[dict[str, Took]], number: int, updates: int, length: int) -> None:
    """One snapshot and one update in milliseconds; what the snapshots add to a long training."""
    written = [getattr(one["default"], f"snapshots_{clock}") for one in rounds]
    snapshot = median(written) / number
    update = (
        median(getattr(one["default"], clock) - spent for one, spent in zip(rounds, written, strict=True)) / updates
    )
    share = number * snapshot / (length * update)
    print(
        f"{clock:4}: a snapshot {1000 * snapshot:.0f} ms, an update {1000 * update:.0f} ms; "
        f"{length:,} updates take {1 + share:.4f} times as long"
    )


def _model(shape: ModelConfig, vocabulary: Vocabulary):
    return build_models([MaskedLM()], shape, vocabulary)["masked-lm"]


def _data() -> tuple[TrainingData, Vocabulary]:
    corpus = generate_grammar(4000, seed=0)
    tokenizer = train_tokenizer(corpus.column("text"), 2000)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    source = corpus.encode(tokenizer, max_length=128)
    return TrainingData(source=source, vocabulary=vocabulary, tokenizer=tokenizer), vocabulary


if __name__ == "__main__":
    main()
