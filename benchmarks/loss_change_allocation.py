"""What recording loss changes costs per step, how exact each rule is, and how much memory it takes.

    python benchmarks/loss_change_allocation.py [--updates 40] [--width 64] [--tokens 1024] [--set-tokens 4096]

Each rule records the same training (same seed, float32, one thread). The overhead is CPU time per update beyond that of
the plain training, in plain updates; the limits of the project are 1.1 for the trapezoid rule and 2.1 for Simpson's,
times |S| / |B|. Residuals: means over updates of |loss change − sum of the allocation|. Kept: tensors between updates,
in copies of the weights (while it works, one to three more).

Seen on one of two busy cores, width 64, 6 layers, |B| = |S| = 1,024 tokens, per |S|/|B| (with statistics of single
parameters in brackets, which add 8 copies of the weights, with two moments and the minimum measured at |S| = 4 |B|):

    masked LM             trapezoid 0.96 (1.00)   Simpson 1.85 (1.84)   Simpson, two panels 3.58 (3.57)
    causal LM             trapezoid 1.02 (0.99)   Simpson 1.90 (1.89)   Simpson, two panels 3.71 (3.35)
    translation           trapezoid 0.96          Simpson 1.84          Simpson, two panels 3.59
    masked LM, 4 |B|      trapezoid 0.78 (0.83)   Simpson 1.67 (1.71)   Simpson, two panels      (3.25)

A training batch has sentences of one length: one pass without padding. The set has 73 of up to 39 tokens. In the five
padded passes that cost least a gradient took 79 ms and the trapezoid rule 1.31; packed, several sentences in a row, it
takes 54. All but gradients is 4 ms beside a step of 53. A run has two windows
here; at the end of each, sorting and counting single parameters takes another 3 to 5 ms.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.dynamics import LossChangeRecorder, RecordConfig, Rule, evaluation_set
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.training import ModelConfig, TrainConfig, TrainingData, build_models, train

RULES: tuple[tuple[Rule, int], ...] = (
    ("first-order", 1),
    ("trapezoid", 1),
    ("midpoint", 1),
    ("simpson", 1),
    ("gauss-legendre", 1),
    ("simpson", 2),
)


class Timed(LossChangeRecorder):
    """A recorder that counts the CPU time and the bytes of its own."""

    cpu, opening = 0.0, 0.0

    def on_step_begin(self, step) -> None:
        started = time.process_time()
        super().on_step_begin(step)
        # The first chord's opening gradient is paid once in a training.
        self.cpu += time.process_time() - started if step.update > 1 else 0.0
        self.opening = self.opening or time.process_time() - started

    def on_step_end(self, step) -> None:
        started = time.process_time()
        super().on_step_end(step)
        self.cpu += time.process_time() - started

    def held(self) -> float:
        """Tensors kept between updates, in copies of the weights."""
        kept = [*self._opening.values(), self.flat.read()]
        counts = self.parameter_counts
        kept += [] if counts is None else [t for t in counts.state().values() if t.numel() == self.flat.size]
        return sum(t.numel() * t.element_size() for t in kept) / (self.flat.size * 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--set-tokens", type=int, default=0, help="size of the evaluation set; default: a batch")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--objective", default="masked-lm")
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--rules", nargs="+", default=[rule for rule, _ in RULES])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    objective, (data, vocabularies) = make_objective(arguments.objective), _data()
    shape = ModelConfig(
        width=arguments.width, layers=6, heads=8, feedforward=4 * arguments.width, activation=arguments.activation
    )
    config = TrainConfig(
        updates=arguments.updates,
        batch_tokens=arguments.tokens,
        micro_tokens=16384,
        precision="fp32",
        device="cpu",
        save_every=0,
    )

    def fresh():
        return build_models([objective], shape, *vocabularies)[objective.name]

    one = evaluation_set(
        "train", objective, data, arguments.set_tokens or arguments.tokens, arguments.parts, micro_tokens=16384
    )
    parameters = sum(p.numel() for p in fresh().parameters())
    print(f"{objective.name}, {parameters:,} parameters, batch {arguments.tokens} tokens, set {one.tokens} tokens")
    print("rule                panels  overhead [updates]  per |S|/|B|  mean residual  of the total  kept [weights]")
    with tempfile.TemporaryDirectory() as folder:
        plain, batch = _seconds(objective, config, data, fresh(), Path(folder) / "plain", [])
        for details in (False, True):
            for rule, panels in (each for each in RULES if each[0] in arguments.rules):
                settings = RecordConfig(rule=rule, splits=panels, parameters=details, check_rules=False, windows=2)
                recorder = Timed([one], load_model(fresh()).anatomy, settings)
                name = f"{rule}-{panels}-{details}"
                total, read = _seconds(objective, config, data, fresh(), Path(folder) / name, [recorder])
                plain_now = (
                    total - recorder.cpu - recorder.opening
                ) / arguments.updates  # beside it, at the same speed of the machine
                overhead = recorder.cpu / arguments.updates / plain_now
                figures = recorder.residuals.summary(None, 0)
                label = f"{rule}{' + parameters' if details else ''}"
                print(
                    f"{label:26} {panels}  {overhead:14.2f}  {overhead * read / arguments.updates / one.tokens:11.2f}"
                    f"  {figures['mean residual']:13.2e}  {figures['residual of the total']:12.2e}"
                    f"  {recorder.held():14.1f}",
                    flush=True,
                )
    print(f"plain update: {1000 * plain / arguments.updates:.0f} ms, {batch / arguments.updates:.0f} tokens")


def _data() -> tuple[TrainingData, tuple[Vocabulary, Vocabulary]]:
    corpus = generate_grammar(4000, seed=0)
    source = train_tokenizer(corpus.column("text"), 2000)
    target = train_tokenizer(corpus.column("translation"), 2000)
    vocabularies = Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target)
    data = TrainingData(
        source=corpus.encode(source, max_length=128),
        vocabulary=vocabularies[0],
        target=corpus.encode(target, side="translation", max_length=128),
        target_vocabulary=vocabularies[1],
    )
    return data, vocabularies


def _seconds(objective, config, data, model, out: Path, hooks) -> tuple[float, int]:
    """CPU seconds of a training and the source tokens it read, without padding."""
    started = time.process_time()
    tokens = train(objective, config, data, model, out, hooks=hooks).source_tokens
    return time.process_time() - started, tokens


if __name__ == "__main__":
    main()
