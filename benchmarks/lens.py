"""What lenses cost against the plain way, as ratios in one run.

    python benchmarks/lens.py
    python benchmarks/lens.py --width 64 --vocabulary 2000 --threads 2

Reading all layers: `readout` passes over the blocks; the plain way runs the model once per layer with its last block's
output replaced. A training step of the tuned lens: ours hands the gradient q − p to the head; the plain way builds the
divergence in autograd, behind a log-softmax. Times are of one random BERT masked LM (a study's model by default),
medians over rounds in which each way ran once.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from infoflow.foundation import set_threads
from infoflow.models import Model, load_model, model_inputs, readout, tap
from infoflow.representations import TunedLens
from infoflow.representations._lens import accumulate_gradients


def main() -> None:
    options = parse()
    set_threads(options.threads)
    model = random_masked_lm(options)
    inputs = model_inputs(model, torch.randint(10, options.vocabulary, (options.tokens // 16, 16)))
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**inputs)
    states = torch.stack(seen.hidden["encoder"])
    read, lens = readout(model), TunedLens.of(model)
    rows = states.flatten(1, 2)
    compare(
        f"reading {len(states)} layers of {rows.shape[1]} tokens",
        lambda: [read(layer) for layer in states],
        lambda: [by_replacement(model, inputs, layer) for layer in states],
        options.rounds,
    )
    with torch.enable_grad():
        compare(
            f"one training step on {rows.shape[1]} tokens",
            lambda: accumulate_gradients(lens, read, rows),
            lambda: by_autograd(model, lens, rows),
            options.rounds,
        )


def compare(what: str, ours: Callable[[], object], plain: Callable[[], object], rounds: int) -> None:
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        times.append((clock(ours), clock(plain)))
    kept = times[1:]  # the first round warms up
    seconds = [statistics.median(own for own, _ in kept), statistics.median(other for _, other in kept)]
    ratio = statistics.median(other / own for own, other in kept)
    print(f"{what}: {1000 * seconds[0]:.0f} ms; the plain way {1000 * seconds[1]:.0f} ms, {ratio:.1f} times as long")


def clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def by_replacement(model: Model, inputs: dict, states: Tensor) -> Tensor:
    last = model.module.get_submodule(model.anatomy.stacks[-1].layers[-1].block)
    handle = last.register_forward_hook(lambda *args: states)
    try:
        with torch.no_grad():
            return model.module(**inputs).logits
    finally:
        handle.remove()


def by_autograd(model: Model, lens: TunedLens, states: Tensor) -> None:
    """The divergence as the formula has it, through the head by name."""
    head = model.module.get_submodule("cls")
    with torch.no_grad():
        final = head(states[-1]).log_softmax(dim=-1)
    for layer in range(lens.num_layers):
        found = head(lens(states[layer], layer)).log_softmax(dim=-1)
        (final.exp() * (final - found)).sum(dim=-1).mean().backward()


def random_masked_lm(options: argparse.Namespace) -> Model:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=8,
        intermediate_size=4 * options.width,
    )
    return load_model(BertForMaskedLM(config))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    settings = {"width": 128, "layers": 6, "vocabulary": 4000, "tokens": 64, "rounds": 20, "threads": 1}
    for name, default in settings.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


if __name__ == "__main__":
    main()
