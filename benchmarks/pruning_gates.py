"""What gates cost in a training step: an update with Hard Concrete gates on the heads, beside the same without.

    python benchmarks/pruning_gates.py [--rounds 12] [--widths 128 256 512]

Random sentence pairs with the lengths of everyday ones, 6 + 6 layers, 8 heads, 2,048 source tokens per update, one
thread. Both updates take turns on the same batch, so that other work on the machine slows both; shown is the median
over rounds of the ratio of processor times. All weights train in both, so that gates are the only difference.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from training_step import BATCH_TOKENS, new_model, random_data
from transformers import PreTrainedModel

from infoflow.foundation import set_threads
from infoflow.models import load_model
from infoflow.objectives import AbstractObjective, Translation, Vocabulary
from infoflow.pruning import GatedObjective, HardConcreteGates, attached
from infoflow.training import LengthBucketSampler, TrainConfig, TrainingData, Updater, make_accelerator
from infoflow.training._config import make_optimizer

SCOPES = (("encoder-self",), None)
Step = Callable[[int], float]  # one update, by its number; returns its processor seconds


def timed(objective: AbstractObjective, data: TrainingData, module: PreTrainedModel) -> Step:
    """The update of `infoflow.training`."""
    config = TrainConfig(batch_tokens=BATCH_TOKENS)
    module.train()
    updater = Updater(objective, module, data, config, make_accelerator("cpu"))
    optimizer = make_optimizer(module, config)
    sampler = LengthBucketSampler(data.source.lengths, 0, BATCH_TOKENS)

    def step(update: int) -> float:
        rows = sampler.rows(update)
        start = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        updater.accumulate(updater.batches(rows, 0), rows, update, stop=False)
        optimizer.step()
        return time.process_time() - start

    return step


def overhead(data: TrainingData, width: int, kinds: tuple[str, ...] | None, rounds: int) -> tuple[float, float, float]:
    """Median ratio of the gated to the plain update, and the medians of both in seconds."""
    objective = Translation()
    plain = timed(objective, data, new_model(objective, data, width))
    model = load_model(new_model(objective, data, width), device="cpu")
    gates = HardConcreteGates(model, kinds, rate_scale=50.0)
    with attached(model, gates):
        weighed = GatedObjective(inner=objective, weight=0.1, settings="")
        gated = timed(weighed, data, model.module)
        pairs = []
        for update in range(1, rounds + 3):
            first, second = (plain, gated) if update % 2 else (gated, plain)
            one, other = first(update), second(update)
            pairs.append((one, other) if update % 2 else (other, one))
    pairs = pairs[2:]  # the first ones warm up
    ratio = statistics.median(gated / plain for plain, gated in pairs)
    return ratio, *(statistics.median(times) for times in zip(*pairs, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512])
    arguments = parser.parse_args()
    set_threads(1)
    special = {"pad": 0, "start": 2, "end": 3, "mask": 4, "special": (0, 1, 2, 3, 4)}
    data = random_data(Vocabulary(size=4000, **special))
    for width in arguments.widths:
        for kinds in SCOPES:
            ratio, plain, gated = overhead(data, width, kinds, arguments.rounds)
            label = f"width {width}, gates on {kinds[0] if kinds else 'all heads'}"
            print(f"{label:<40} {100 * (ratio - 1):+5.1f} %   ({plain:.2f} s and {gated:.2f} s)", flush=True)


if __name__ == "__main__":
    main()
