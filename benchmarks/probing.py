"""All probes of a task trained as one problem, against a loop over them; one run.

    python benchmarks/probing.py                       # the size of a `quick` study: half a minute on one core
    python benchmarks/probing.py --small               # seconds, to see that it runs
    python benchmarks/probing.py --batch 80,256,1024   # and what the size of a batch does to both
    python benchmarks/probing.py --hidden 64           # probes with a hidden layer

Target: at least 5 times faster at 7 layers × 3 seeds × 2 sets of labels, width 64, 20,000 words, 17 classes, 2 threads.

Seen on a busy machine (AMD EPYC), seconds of the process, with batches of 80: on one thread 3.3 against 15.4, on
two 5.9 against 45.4 (3.3 against 27.7 by the clock: ×8.3); with batches of 256 5.8 against 26.7 on two. Accuracies were
the same to the last digit. Why: a step of one probe is 2 · 2 · 80 · 64 · 17 = 0.35 MFLOP, about 10 µs, and the loop
takes 140 µs for it, most of which is the calls of some forty operations; all 42 together take 30 µs each, a third of
them products of matrices, a sixth the gathering of examples. Larger batches have more arithmetic to hide the calls
behind (×4.6 at 256), and take longer in all, since they need more epochs: so probes train with the source's 80. With 64
hidden units the arithmetic of a step is larger too: ×3.2 on one thread, accuracies within 0.003 of the loop's.

The loop trains one probe after the other with the same first weights, examples, settings and rule for stopping, as one
would write it: `torch.nn.functional.linear`, `cross_entropy`, fused Adam, each layer contiguous in memory.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from infoflow.foundation import set_threads
from infoflow.probing import LabelledRows, ProbeGrid, ProbeSettings, train_probes
from infoflow.subjects.probing.measures._batched import _LEAST_STEPS, _examples, _first_weights
from infoflow.subjects.probing.measures._features import Scaling

CLASSES, SEEDS = 17, 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Words:
    """Words whose states are a class's mean and noise, and a second set of labels that their types decide."""

    states: np.ndarray  # (word, layer, width)
    labels: np.ndarray  # (1 + seed, word)
    parts: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def draw(cls, words: int, layers: int, width: int) -> "Words":
        rng = np.random.default_rng(0)
        types = np.minimum(rng.zipf(1.3, words), 2000) - 1
        tag_of = rng.integers(0, CLASSES, 2000)
        labels = np.stack([tag_of[types], *(rng.integers(0, CLASSES, (SEEDS, 2000))[:, types])])
        means = rng.normal(size=(CLASSES, layers, width)) * 0.3
        own = rng.normal(size=(2000, layers, width)) * 0.3
        noise = rng.normal(size=(words, layers, width))
        states = (means[labels[0]] + own[types] + noise).astype(np.float32)
        order = rng.permutation(words)
        train, dev, test = np.split(order, [int(0.6 * words), int(0.8 * words)])
        return cls(states=states, labels=labels, parts=(train, dev, test))

    def rows(self, part: int) -> LabelledRows:
        return LabelledRows(rows=self.states[self.parts[part]], labels=self.labels[:, self.parts[part]])


def grid(layers: int) -> ProbeGrid:
    """Every layer with every seed, for the task and for that seed's control labels."""
    every = product(range(layers), range(SEEDS), (0, 1))
    cells = np.array([(layer, seed, k * (1 + seed)) for layer, seed, k in every])
    return ProbeGrid(layer=cells[:, 0], seed=cells[:, 1], labels=cells[:, 2])


def together(words: Words, settings: ProbeSettings) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and epochs of all probes, trained as one problem."""
    asked = grid(words.states.shape[1])
    classes = np.full(1 + SEEDS, CLASSES)
    trained = train_probes(words.rows(0), words.rows(1), asked, classes, settings)
    test = words.rows(2)
    return (trained.predict(test.rows) == test.labels[asked.labels]).mean(1), trained.epochs


def one_by_one(words: Words, settings: ProbeSettings) -> tuple[np.ndarray, np.ndarray]:
    """The same in a loop."""
    asked = grid(words.states.shape[1])
    scaling = Scaling.of(words.rows(0).rows)
    parts = [
        torch.from_numpy((words.states[part] - scaling.mean) / scaling.spread).transpose(0, 1).contiguous()
        for part in words.parts
    ]
    labels = [torch.from_numpy(words.labels[:, part]) for part in words.parts]
    found = [
        train_one([part[layer] for part in parts], [each[k] for each in labels], seed, settings)
        for layer, seed, k in zip(asked.layer.tolist(), asked.seed.tolist(), asked.labels.tolist(), strict=True)
    ]
    accuracy, epochs = zip(*found, strict=True)
    return np.array(accuracy), np.array(epochs)


def train_one(states: list[Tensor], labels: list[Tensor], seed: int, settings: ProbeSettings) -> tuple[float, int]:
    """One probe of one layer: accuracy and epochs."""
    drawn = _first_weights(np.array([seed]), states[0].shape[1], CLASSES, settings, torch.device("cpu"))
    weights = {name: value[0].mT.contiguous() if value.ndim == 3 else value[0] for name, value in drawn.items()}
    for value in weights.values():
        value.requires_grad_()
    optimiser = torch.optim.Adam(list(weights.values()), lr=settings.rate, fused=True)
    examples = _examples(np.array([seed]), len(states[0]), settings.batch)
    steps = max(_LEAST_STEPS, -(-len(states[0]) // settings.batch))
    best, kept, waited, epochs = (-1.0, -float("inf")), weights, 0, 0
    while epochs < settings.epochs and waited < settings.patience:
        for _ in range(steps):
            index = torch.from_numpy(next(examples)[0])
            optimiser.zero_grad()
            functional.cross_entropy(logits(weights, states[0][index]), labels[0][index]).backward()
            optimiser.step()
        score = scores(weights, states[1], labels[1])
        waited, epochs = 0 if score[0] > best[0] else waited + 1, epochs + 1
        if score > best:
            best, kept = score, {name: value.detach().clone() for name, value in weights.items()}
    return scores(kept, states[2], labels[2])[0], epochs


def logits(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    if "hidden" in weights:
        inputs = functional.linear(inputs, weights["hidden"], weights["hidden_bias"]).relu()
    return functional.linear(inputs, weights["output"], weights["output_bias"])


def scores(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> tuple[float, float]:
    with torch.no_grad():
        said = logits(weights, inputs)
        return float((said.argmax(1) == labels).double().mean()), -float(functional.cross_entropy(said, labels))


Run = Callable[[Words, ProbeSettings], tuple[np.ndarray, np.ndarray]]


def timed(run: Run, words: Words, settings: ProbeSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds by the clock and of the process, accuracies, epochs."""
    started = np.array([time.perf_counter(), time.process_time()])
    accuracy, epochs = run(words, settings)
    return np.array([time.perf_counter(), time.process_time()]) - started, accuracy, epochs


def compare(words: Words, settings: ProbeSettings) -> None:
    seconds, accuracy, epochs = timed(together, words, settings)
    loop_seconds, loop_accuracy, loop_epochs = timed(one_by_one, words, settings)
    print(f"batches of {settings.batch}, {settings.hidden} hidden units, {len(epochs)} probes")
    for name, ours, theirs in zip(("by the clock", "of the process"), seconds, loop_seconds, strict=True):
        print(f"    seconds {name:<15} {ours:8.2f} {theirs:8.2f}  ×{theirs / ours:5.1f}")
    print(f"    epochs                  {epochs.mean():8.1f} {loop_epochs.mean():8.1f}")
    for k, name in enumerate(("task", "control")):
        print(f"    accuracy, {name:<13} {accuracy[k::2].mean():8.4f} {loop_accuracy[k::2].mean():8.4f}")
    largest, spread = np.abs(accuracy - loop_accuracy).max(), accuracy.reshape(-1, SEEDS, 2).std(1, ddof=1).mean()
    print(f"    largest difference {largest:.4f}, spread of seeds {spread:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--batch", default="80,256")
    parser.add_argument("--hidden", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    threads = set_threads(options.threads)
    words = Words.draw(1000, 3, 16) if options.small else Words.draw(20_000, 7, 64)
    print(f"{threads} thread{'s' * (threads > 1)}: together, one by one")
    for batch in options.batch.split(","):
        compare(words, ProbeSettings(batch=int(batch), hidden=options.hidden))


if __name__ == "__main__":
    main()
