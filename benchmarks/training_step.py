"""Training speed as ratios within one run, against what a user would write instead.

    python benchmarks/training_step.py [--seconds 6] [--vocabulary 4000]

Sentences are random tokens with the lengths of everyday sentences; one thread; tokens are source tokens per processor
second, so that other work on the machine disturbs little.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from transformers import PreTrainedModel

from infoflow.foundation import set_threads
from infoflow.objectives import AbstractObjective, Batch, CausalLM, MaskedLM, Translation, Vocabulary
from infoflow.training import (
    LengthBucketSampler,
    ModelConfig,
    TrainConfig,
    TrainingData,
    Updater,
    build_models,
    make_accelerator,
)
from infoflow.training._config import make_optimizer, mixed_precision

NUM_SENTENCES, BATCH_TOKENS = 20_000, 2048
Step = Callable[[], int]  # one update; returns its source tokens


class RandomSentences:
    """Encoded sentences of random tokens."""

    def __init__(self, lengths: np.ndarray, vocabulary: Vocabulary, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.lengths, self.sentence_ids = lengths, np.arange(len(lengths))
        self._rows = [generator.integers(5, vocabulary.size, size=length) for length in lengths]

    def row(self, index: int) -> np.ndarray:
        return self._rows[index]


def random_data(vocabulary: Vocabulary) -> TrainingData:
    """Sentence pairs with the lengths of everyday sentences: 4 to 40 tokens, 12 on average."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.gamma(6, 1.75, NUM_SENTENCES).astype(int) + 2, 4, 40)
    target = np.clip((lengths * 1.15 + generator.normal(0, 2, NUM_SENTENCES)).astype(int), 4, 50)
    return TrainingData(
        source=RandomSentences(lengths, vocabulary, 1),
        vocabulary=vocabulary,
        target=RandomSentences(target, vocabulary, 2),
        target_vocabulary=vocabulary,
    )


def new_model(objective: AbstractObjective, data: TrainingData, width: int) -> PreTrainedModel:
    shape = ModelConfig(width=width, feedforward=4 * width)
    return build_models([objective], shape, data.vocabulary, data.target_vocabulary)[objective.name]


def ours(objective: AbstractObjective, data: TrainingData, width: int, precision: str = "fp32") -> Step:
    """The update of `infoflow.training`: length buckets, supervised positions only, its noise, clipping, AdamW."""
    model, config = new_model(objective, data, width), TrainConfig(batch_tokens=BATCH_TOKENS)
    updater = Updater(objective, model, data, config, make_accelerator("cpu"))
    optimizer = make_optimizer(model, config)
    sampler = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS)
    updates = iter(range(1, 10**9))

    def step() -> int:
        update = next(updates)
        rows = sampler.rows(update)
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(model, "bf16" if precision == "bf16" else "fp32", torch.device("cpu")):
            result = updater.accumulate(updater.batches(rows, 0), rows, update, stop=False)
        optimizer.step()
        return result.source_tokens

    return step


def bare(objective: AbstractObjective, data: TrainingData, width: int, full: bool, bucketed: bool = True) -> Step:
    """A bare PyTorch loop over ready-made batches: no noise to draw, no log; projects every position if `full`."""
    model = new_model(objective, data, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batches = prepared(objective, data, bucketed)

    def step() -> int:
        batch = next(batches)
        optimizer.zero_grad(set_to_none=True)
        if full:
            logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        else:
            (term,) = objective.loss(model, batch, batch.noise).values()
            loss = term.total / term.count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return batch.source_tokens

    return step


def prepared(objective: AbstractObjective, data: TrainingData, bucketed: bool) -> Iterator[Batch]:
    """Ready-made batches, by length or in random order with as many sentences on average."""
    sampler = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS)
    size = NUM_SENTENCES // sampler.num_batches
    generator = np.random.default_rng(3)
    rows = [sampler.rows(n) if bucketed else generator.integers(0, NUM_SENTENCES, size) for n in range(1, 41)]
    batches = [data.batch(objective, batch, ("benchmark",), 0) for batch in rows]
    while True:
        yield from batches


def rate(step: Step, seconds: float) -> float:
    """Source tokens per processor second."""
    for _ in range(2):
        step()
    start, tokens = time.process_time(), 0
    while time.process_time() - start < seconds:
        tokens += step()
    return tokens / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="processor seconds per measurement")
    parser.add_argument("--vocabulary", type=int, default=4000)
    arguments = parser.parse_args()
    set_threads(1)
    special = {"pad": 0, "start": 2, "end": 3, "mask": 4, "special": (0, 1, 2, 3, 4)}
    data = random_data(Vocabulary(size=arguments.vocabulary, **special))

    def compare(label: str, ratio_of: Step, to: Step) -> None:
        first, second = rate(ratio_of, arguments.seconds), rate(to, arguments.seconds)
        print(f"{label:<68} {first / second:5.2f}x   ({first:,.0f} and {second:,.0f} tokens/s)", flush=True)

    masked, causal, translation = MaskedLM(), CausalLM(), Translation()
    for objective in (causal, masked, translation):
        label = f"our update / bare PyTorch loop, {objective.name}, width 128"
        compare(label, ours(objective, data, 128), bare(objective, data, 128, full=False))
    label = "supervised positions only / full projection, masked-lm, width 128"
    compare(label, bare(masked, data, 128, full=False), bare(masked, data, 128, full=True))
    label = "length buckets / random batches, masked-lm, width 128"
    compare(label, bare(masked, data, 128, full=False), bare(masked, data, 128, full=False, bucketed=False))
    label = "our update / full projection of random batches, masked-lm, width 128"
    compare(label, ours(masked, data, 128), bare(masked, data, 128, full=True, bucketed=False))
    for width in (64, 128, 256):
        for objective in (causal, masked, translation):
            label = f"bf16 / fp32, {objective.name}, width {width}"
            compare(label, ours(objective, data, width, "bf16"), ours(objective, data, width))


if __name__ == "__main__":
    main()
