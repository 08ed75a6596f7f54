"""What the live explorer's answers cost, as ratios to one bare forward pass in the same run.

    python benchmarks/explorer.py
    python benchmarks/explorer.py --width 768 --layers 12 --heads 12 --vocabulary 50000

Of one random BERT masked LM (6 × 384 with 30,000 words by default) on a sentence of 32 tokens: all heads with their
states and logits; the same with a token hidden, and what changed; the lens at one place; relevance for one prediction
(gradient × input); ALTI's maps. Times are CPU seconds of one thread; each ratio is the median over rounds in which
everything ran once, with no answer kept from round to round. Goals: all heads 1.3, a change 1.5, lens 3, relevance 2.5.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from _timing import clock
from transformers import BertConfig, BertForMaskedLM

from infoflow.explorer._answers import Responses
from infoflow.explorer._asked import asked
from infoflow.explorer._readings import Readings
from infoflow.explorer._sentence_reading import ExploredModel
from infoflow.explorer._wire import unwired
from infoflow.foundation import keep_freed_memory, set_threads
from infoflow.heads import read_tokens, sentence_inputs
from infoflow.models import Model, load_model

GOALS = {"all heads": 1.3, "a token hidden": 1.5, "a head closed": 1.5, "lens at a place": 3.0, "relevance": 2.5}


def main() -> None:
    options = parse()
    keep_freed_memory()  # as every command does
    set_threads(1)
    torch.manual_seed(0)
    model = random_masked_lm(options)
    generator = torch.Generator().manual_seed(0)
    rounds = [times_of(model, sentence(options, generator)) for _ in range(options.rounds + 1)][
        1:
    ]  # the first warms up
    bare = statistics.median(one["bare pass"] for one in rounds)
    print(f"bare pass: {1000 * bare:.0f} ms of CPU time, {options.layers} × {options.width}, {options.tokens} tokens")
    for name in rounds[0]:
        if name != "bare pass":
            ratio = statistics.median(one[name] / one["bare pass"] for one in rounds)
            goal = f", goal {GOALS[name]}" if name in GOALS else ""
            print(f"{name}: {1000 * statistics.median(one[name] for one in rounds):.0f} ms, {ratio:.2f} passes{goal}")


def times_of(model: Model, text: str) -> dict[str, float]:
    """CPU seconds of each answer about a sentence that was not read before."""
    answers, seconds = Responses(Readings([ExploredModel(0, model)], 512)), dict[str, float]()
    answers.readings.subjects[0].readout  # noqa: B018 (made once in the life of an explorer)
    inputs = sentence_inputs(model, read_tokens(model, text))

    def timed(name: str, work: Callable[[], bytes]) -> bytes:
        begin = clock()
        answer = work()
        seconds[name] = clock() - begin
        return answer

    def ask(**fields: object) -> Callable[[], bytes]:
        request = asked({"page": "benchmark", **fields})
        return lambda: (answers.change if request.change else answers.read)(request)

    with torch.no_grad():
        timed("bare pass", lambda: bytes(model.module(**inputs).logits.shape[1]))
    head, _ = unwired(timed("all heads", ask(text=text, want=["attention"])))
    key = head["key"]
    timed("a token hidden", ask(key=key, hide=[["encoder", 3]], want=["attention"]))
    timed("a head closed", ask(key=key, close={"heads": [["encoder", "self", 1, 1]]}, want=["attention"]))
    timed("lens at a place", ask(key=key, want=["lens"], position=4))
    timed("lens everywhere", ask(key=key, want=["lens"]))
    timed("relevance", ask(key=key, want=["relevance"], position=4))
    timed("flow (ALTI)", ask(key=key, want=["flow"]))
    for name, fields in {"each token hidden": {"want": ["influence"]}, "each head closed": {"sweep": "heads"}}.items():
        request = asked({"page": "benchmark", "key": key, **fields})
        parts = answers.lines(request)
        timed(f"{name}: first lines", lambda parts=parts: bytes(len(next(parts))))
        timed(f"{name}: the rest", lambda parts=parts: bytes(sum(map(len, parts))))
    return seconds


def sentence(options: argparse.Namespace, generator: torch.Generator) -> str:
    ids = torch.randint(5, options.vocabulary, (options.tokens,), generator=generator)
    return " ".join(map(str, ids.tolist()))


def random_masked_lm(options: argparse.Namespace) -> Model:
    config = BertConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
    )
    return load_model(BertForMaskedLM(config))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
