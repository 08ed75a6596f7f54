"""What a tap costs: forward passes with it against those without, as ratios in one run.

    python benchmarks/tap_overhead.py
    python benchmarks/tap_overhead.py --width 128 --layers 4 --batch 64 --length 32 --threads 2

Each line is a way to run the same random BERT encoder over the same batch; `ratio` is its time over that of a plain
SDPA forward pass, the median over rounds in which every way ran once, so that a noisy machine disturbs all alike.
`eager + output_attentions + output_hidden_states` is what a user would write instead.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import BertConfig, BertModel

from infoflow.foundation import set_threads
from infoflow.models import AttentionCall, Model, load_model, model_inputs, tap


def main() -> None:
    options = parse()
    set_threads(options.threads)
    model = random_encoder(options.width, options.layers)
    inputs = model_inputs(model, torch.randint(10, 1000, (options.batch, options.length)))
    ways = {
        "plain SDPA": lambda: model.module(**inputs),
        "tap(hidden)": lambda: tapped(model, inputs, hidden=True),
        "tap(heads)": lambda: tapped(model, inputs, heads=True),
        "tap(hidden, heads)": lambda: tapped(model, inputs, hidden=True, heads=True),
        "tap(on_attention), confidence only": lambda: tapped(model, inputs, on_attention=confidence),
        "tap(attention)": lambda: tapped(model, inputs, attention=True),
        "eager + output_attentions + output_hidden_states": lambda: eager(model, inputs),
    }
    print(
        f"{options.layers} layers, width {options.width}, {options.batch} x {options.length} tokens, "
        f"{options.rounds} rounds"
    )
    times = measure(ways, options.rounds)
    plain = times["plain SDPA"]
    for name, seconds in times.items():
        ratio = statistics.median(own / base for own, base in zip(seconds, plain, strict=True))
        print(f"{name:50s} {1000 * statistics.median(seconds):8.1f} ms   ratio {ratio:.2f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"width": 384, "layers": 6, "batch": 16, "length": 64, "rounds": 15, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def random_encoder(width: int, layers: int) -> Model:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
    )
    return load_model(BertModel(config, add_pooling_layer=False))


def tapped(model: Model, inputs: dict, **reads: object) -> None:
    with tap(model, **reads):  # type: ignore[arg-type]
        model.module(**inputs)


def confidence(call: AttentionCall) -> None:
    call.weights.amax(dim=-1).mean(dim=(0, 2))


def eager(model: Model, inputs: dict) -> None:
    model.module.set_attn_implementation("eager")
    model.module(**inputs, output_attentions=True, output_hidden_states=True)
    model.module.set_attn_implementation("sdpa")


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for round_index in range(rounds + 1):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                if round_index:
                    times[name].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main()
