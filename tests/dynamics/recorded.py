"""A recorded run, as a script that may kill itself or be one of several processes.

python tests/dynamics/recorded.py OUT [--die 7]
torchrun --nproc-per-node 2 tests/dynamics/recorded.py OUT
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from training.tiny import DieAt, tiny_config, tiny_data, tiny_model

from infoflow.dynamics import LossChangeRecorder, RecordConfig, evaluation_set
from infoflow.models import load_model
from infoflow.objectives import MaskedLM
from infoflow.training import ModelConfig, train

SCRIPT = Path(__file__)


def run(out: Path, dropout: float = 0.1, die: int = 0) -> None:
    """Train and record under `out`, to the end or to its own death."""
    objective = MaskedLM()
    shape = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32, dropout=dropout)
    one = evaluation_set("train", objective, tiny_data(), 150, parts=2, micro_tokens=60)
    anatomy = load_model(tiny_model(objective, shape)).anatomy
    recorder = LossChangeRecorder([one], anatomy, RecordConfig(windows=7), out / "recording")
    hooks = [recorder, *([DieAt(die)] if die else [])]
    train(objective, tiny_config(), tiny_data(), tiny_model(objective, shape), out, hooks=hooks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--die", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run(arguments.out, arguments.dropout, arguments.die)


if __name__ == "__main__":
    main()
