"""A small tuning, also as a script that kills itself at a chosen update of a chosen training.

python tests/adaptation/tune_small.py OUT METHOD [--patience PASSES] [--die TRAINING UPDATE]
"""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from adaptation.small_task import small_data, small_model

from infoflow.adaptation import TuneConfig, Tuned, tune
from infoflow.training import TrainingHook


class DieAt(TrainingHook):
    """SIGKILL to this very process at the start of an update."""

    name = "die"

    def __init__(self, update: int) -> None:
        self._update = update

    def on_step_begin(self, step) -> None:
        if step.update == self._update:
            os.kill(os.getpid(), signal.SIGKILL)


def tuned(out: Path, method: str, die: tuple[int, int] | None = None, patience: int = 0) -> Tuned:
    """Two rates and two seeds, three trainings; `die`: at which update of which training, from 1."""
    config = TuneConfig(
        method=method,  # type: ignore[arg-type]
        layers=1,
        epochs=3,
        head_epochs=3,
        patience=patience,
        batch_examples=16,
        learning_rates=(1e-2, 1e-3),
        seeds=(0, 1),
        save_every=2,
        device="cpu",
    )
    trainings = []

    def hooks(seed: int, rate: float) -> list[TrainingHook]:
        trainings.append((seed, rate))
        return [DieAt(die[1])] if die is not None and len(trainings) == die[0] else []

    return tune(small_model(), small_data(), config, out, hooks=hooks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("method")
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--die", type=int, nargs=2)
    arguments = parser.parse_args()
    tuned(arguments.out, arguments.method, arguments.die, arguments.patience)


if __name__ == "__main__":
    main()
