"""A run small enough for tests, also as a script that kills itself at a chosen moment.

python tests/training/tiny.py OUT [--objective masked-lm] [--die step:7] [--keep]
"""

import argparse
import importlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import torch

from infoflow.objectives import Vocabulary, make_objective
from infoflow.training import ModelConfig, SnapshotPlan, TrainConfig, TrainingData, TrainingHook, build_models, train

VOCABULARY = Vocabulary(size=60, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
TARGET_VOCABULARY = Vocabulary(size=50, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
EVERY = SnapshotPlan(steps=lambda config: range(config.updates + 1))
SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32)


class Rows:
    """Encoded sentences of random tokens."""

    def __init__(self, num: int, seed: int, vocabulary: Vocabulary = VOCABULARY) -> None:
        generator = np.random.default_rng(seed)
        self.sentence_ids = np.arange(num) * 3 + 1
        self.lengths = generator.integers(3, 14, size=num)
        text = [generator.integers(5, vocabulary.size, size=length - 2) for length in self.lengths]
        self._rows = [np.array([vocabulary.start, *row, vocabulary.end], dtype=np.int32) for row in text]

    def row(self, i: int) -> np.ndarray:
        return self._rows[i]


def tiny_data(num: int = 60, seed: int = 0) -> TrainingData:
    """Random parallel sentences."""
    return TrainingData(
        source=Rows(num, seed),
        vocabulary=VOCABULARY,
        target=Rows(num, seed + 1, TARGET_VOCABULARY),
        target_vocabulary=TARGET_VOCABULARY,
    )


def tiny_config(**changes) -> TrainConfig:
    """14 updates over three epochs, with a checkpoint every 3."""
    settings = {"updates": 14, "batch_tokens": 128, "micro_tokens": 80, "learning_rate": 1e-2, "save_every": 3}
    return TrainConfig(**{**settings, "log_every": 4, "device": "cpu", **changes})


def tiny_model(objective, shape: ModelConfig = SHAPE, seed: int = 0):
    """A fresh model for one objective."""
    return build_models([objective], shape, VOCABULARY, TARGET_VOCABULARY, seed=seed)[objective.name]


class DieAt(TrainingHook):
    """SIGKILL to this very process at the start of an update."""

    name = "die"

    def __init__(self, update: int) -> None:
        self._update = update

    def on_step_begin(self, step) -> None:
        if step.update == self._update:
            os.kill(os.getpid(), signal.SIGKILL)


def _die_in(name: str, call: int) -> None:
    """Replace a function of infoflow, by default of the module of checkpoints, by one that kills at its n-th call."""
    module_name, _, function_name = name.rpartition(".")
    module = importlib.import_module(f"infoflow.{module_name or 'training._checkpoint'}")
    original, calls = getattr(module, function_name), []

    def dying(*args, **options):
        calls.append(None)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(module, function_name, dying)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--objective", default="masked-lm")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--die", default="")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--keep", action="store_true", help="a snapshot of every update")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hooks = []
    if arguments.die:
        where, number = arguments.die.split(":")
        if where == "step":
            hooks.append(DieAt(int(number)))
        else:
            _die_in(where, int(number))
    objective = make_objective(arguments.objective)
    shape = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32, dropout=arguments.dropout)
    validation = tiny_data(20, seed=9) if arguments.validate else None
    model, out = tiny_model(objective, shape), arguments.out
    keep = EVERY if arguments.keep else None
    data = tiny_data()
    result = train(objective, tiny_config(), data, model, out, validation=validation, hooks=hooks, snapshots=keep)
    rank = os.environ.get("RANK", "0")
    (out / f"validation-{rank}.json").write_text(json.dumps(result.validation_losses))


if __name__ == "__main__":
    main()
