"""A small run of any objective, also as a script that kills itself at the start of an update.

python tests/training/any_objective.py OUT --objective mass [--token-dropout 0.1] [--die 7]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from objectives.zoo import vocabulary
from training.tiny import DieAt, Rows, tiny_config

from infoflow.architectures import ModelConfig
from infoflow.objectives import Example, make_objective
from infoflow.training import TrainingData, build_models, train

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32)
WORDS = vocabulary()


class OrdinaryRows(Rows):
    """Encoded sentences without sentinels in them."""

    def __init__(self, num: int, seed: int) -> None:
        super().__init__(num, seed, vocabulary(size=90, special=(0, 1, 2, 3, 4), sentinels=()))

    def row(self, i: int) -> np.ndarray:
        return super().row(i).astype(np.int64)


class PairRows(OrdinaryRows):
    """Each sentence cut into two segments; every second pair counts as random, and as swapped."""

    def example(self, index: int) -> Example:
        tokens = self.row(index)[1:-1]
        middle, label = (len(tokens) + 1) // 2, np.array(index % 2)
        return Example(texts=(tokens[:middle], tokens[middle:]), labels={"is_random": label, "is_swapped": label})


def data_for(objective, num: int = 60, seed: int = 0) -> TrainingData:
    """Random sentences, with translations; pairs of segments for an objective that reads pairs."""
    rows = PairRows if objective.reads == "pair" else OrdinaryRows
    target = {"target": OrdinaryRows(num, seed + 1), "target_vocabulary": WORDS} if objective.needs_translation else {}
    return TrainingData(source=rows(num, seed), vocabulary=WORDS, **target)


def model_for(objective, seed: int = 0):
    """A fresh model for one objective."""
    return build_models([objective], SHAPE, WORDS, seed=seed)[objective.name]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--objective", required=True)
    parser.add_argument("--token-dropout", type=float)
    parser.add_argument("--die", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = {} if arguments.token_dropout is None else {"token_dropout": arguments.token_dropout}
    objective = make_objective(arguments.objective, **options)
    hooks = [] if arguments.die is None else [DieAt(arguments.die)]
    train(objective, tiny_config(), data_for(objective), model_for(objective), arguments.out, hooks=hooks)


if __name__ == "__main__":
    main()
