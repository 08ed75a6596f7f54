"""What noise costs: processor time of corrupting a batch as a share of a training step, for each objective; and what a
step of ELECTRA costs beside the floating-point operations of a masked LM and of its generator.

    python benchmarks/corruption.py [--rounds 12] [--width 64]

Sentences are random tokens with the lengths of everyday sentences; the model and the batches are those of the preset
`quick`; one thread. Goals: at most 5 % of a step, and at most 1.35 times.
"""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _timing import best_of
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from infoflow.foundation import set_threads
from infoflow.objectives import OBJECTIVES, AbstractObjective, Batch, Electra, Example, MaskedLM, Vocabulary
from infoflow.training import LengthBucketSampler, ModelConfig, TrainConfig, TrainingData, build_models
from infoflow.training._config import make_optimizer
from infoflow.training._update import Updater, make_accelerator

NUM_SENTENCES, BATCH_TOKENS, SIZE = 5_000, 1024, 2000
SENTINELS = tuple(range(SIZE - 1, SIZE - 101, -1))


def words() -> Vocabulary:
    """As the tokenizer of `quick`: every fourth piece goes on with a word."""
    ids = np.arange(SIZE)
    return Vocabulary(
        size=SIZE,
        pad=0,
        start=2,
        end=3,
        mask=4,
        special=(0, 1, 2, 3, 4, *SENTINELS),
        sentinels=SENTINELS,
        full_stops=(5, 6, 7),
        continues=(ids % 4 == 0) & (ids > 7) & (ids < SIZE - 100),
        counts=ids + 1,
    )


class RandomSentences:
    """Encoded sentences of random tokens; as pairs, each is cut in two."""

    def __init__(self, lengths: np.ndarray, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.lengths, self.sentence_ids = lengths, np.arange(len(lengths))
        self._rows = [
            np.array([2, *generator.integers(5, SIZE - 100, size=length - 2), 3], dtype=np.int64) for length in lengths
        ]

    def row(self, index: int) -> np.ndarray:
        return self._rows[index]


class RandomPairs(RandomSentences):
    """Each sentence as two segments."""

    def example(self, index: int) -> Example:
        tokens = self.row(index)[1:-1]
        labels = {name: np.array(index % 2) for name in ("is_random", "is_swapped")}
        return Example(texts=(tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :]), labels=labels)


def data_for(objective: AbstractObjective) -> TrainingData:
    """Sentences of 4 to 40 tokens, 12 on average."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.gamma(6, 1.75, NUM_SENTENCES).astype(int) + 2, 4, 40)
    rows = RandomPairs if objective.reads == "pair" else RandomSentences
    known = words()
    return TrainingData(
        source=rows(lengths, 1), vocabulary=known, target=RandomSentences(lengths, 2), target_vocabulary=known
    )


def model_for(objective: AbstractObjective, width: int) -> PreTrainedModel:
    shape = ModelConfig(width=width, layers=6, heads=8, feedforward=4 * width)
    return build_models([objective], shape, words())[objective.name]


def pieces(objective: AbstractObjective, width: int) -> dict[str, Callable[[], object]]:
    """Corrupting the sentences of an update into batches, and a whole update with its noise."""
    data, model, config = data_for(objective), model_for(objective, width), TrainConfig(batch_tokens=BATCH_TOKENS)
    updater = Updater(objective, model, data, config, make_accelerator("cpu"))
    optimizer = make_optimizer(model, config)
    rows = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS).rows(1)

    def corrupt() -> list[Batch]:
        return updater.batches(rows, 0)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        updater.accumulate(updater.batches(rows, 0), rows, 1, stop=False)
        optimizer.step()

    return {"corrupt": corrupt, "step": step}


def operations(objective: AbstractObjective, module: PreTrainedModel, terms: tuple[str, ...]) -> int:
    """Floating-point operations of a forward and a backward pass of these terms over one update's batch."""
    data = data_for(objective)
    rows = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS).rows(1)
    batch = data.batch(objective, rows, ("benchmark",), 0)
    with FlopCounterMode(display=False) as counter:
        found = objective.loss(module, batch, batch.noise)
        torch.stack([found[term].total for term in terms]).sum().backward()
    return counter.get_total_flops()


def generator_operations(module: PreTrainedModel) -> int:
    """Those of the generator's forward and backward pass, its masked LM by itself."""
    joint: Any = module
    data = data_for(electra := Electra())
    rows = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS).rows(1)
    batch = data.batch(electra, rows, ("benchmark",), 0)
    with FlopCounterMode(display=False) as counter:
        states = joint.generator.base_model(batch.input_ids, batch.attention_mask).last_hidden_state
        joint.generator_logits(states[batch["times"] > 0]).logsumexp(dim=-1).sum().backward()
    return counter.get_total_flops()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    set_threads(1)
    print("corrupting a batch / a step, processor time")
    selections: dict[str, AbstractObjective] = {name: cls() for name, cls in OBJECTIVES.items()}
    for selection in ("static", "bernoulli", "whole-word", "n-gram"):
        selections[f"masked-lm, {selection}"] = dataclasses.replace(MaskedLM(), selection=selection)
    for label, objective in selections.items():
        seconds, batches = best_of(arguments.rounds, pieces(objective, arguments.width))
        num = sum(len(batch) for batch in batches["corrupt"])  # type: ignore[attr-defined]
        share = seconds["corrupt"] / seconds["step"]
        print(f"  {label:<26} {share:6.1%}   {1e6 * seconds['corrupt'] / num:6.0f} us a sentence", flush=True)
    electra, masked = Electra(), MaskedLM()
    joint = model_for(electra, arguments.width)
    parts = operations(masked, model_for(masked, arguments.width), ("masked-lm",)) + generator_operations(joint)
    whole = operations(electra, joint, tuple(electra.term_weights))
    print(f"ELECTRA / masked LM and generator, operations: {whole / parts:.2f}x")
    runs = {"electra": pieces(electra, arguments.width)["step"], "masked": pieces(masked, arguments.width)["step"]}
    seconds, _ = best_of(arguments.rounds, runs)
    print(f"ELECTRA's step / masked LM's, processor time: {seconds['electra'] / seconds['masked']:.2f}x")


if __name__ == "__main__":
    main()
