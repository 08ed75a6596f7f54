"""What the live explorer's answers cost, as ratios to one bare forward pass, and a change to a page made anew.

    python benchmarks/explorer.py
    python benchmarks/explorer.py --width 768 --layers 12 --heads 12 --vocabulary 50000

Of one random BERT masked LM (6 × 384 with 30,000 words by default) on a sentence of 32 tokens: all heads with their
states and logits; the same with a token hidden, and what changed; the lens at one place; relevance for one prediction
(gradient × input); ALTI's maps. Times are CPU seconds of one thread; each ratio is the median over rounds in which
everything ran once, with no answer kept from round to round. Goals: all heads 1.3, a change 1.5, lens 3, relevance 2.5.

A change (a token, a head or a layer taken away) is answered from what the page knows already. The alternative is a
page that is made anew: the sentence read, the change, and all pictures of it (heads, lens, relevance). Their
ratio is of pairs, one after the other in the same round, and is told with its least and largest round; a change is to
be seen within 300 ms.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from _timing import clock
from transformers import BertConfig, BertForMaskedLM

from infoflow.foundation import keep_freed_memory, set_threads
from infoflow.heads import read_tokens, sentence_inputs
from infoflow.models import Model, load_model
from infoflow.subjects.explorer.server._answers import Responses, unwired
from infoflow.subjects.explorer.server._readings import ExploredModel, Readings
from infoflow.subjects.explorer.server._request import parsed

GOALS = {"all heads": 1.3, "a token hidden": 1.5, "a head closed": 1.5, "lens at a place": 3.0, "relevance": 2.5}
CHANGES = {
    "a token hidden": {"hide": [["encoder", 3]]},
    "a head closed": {"close": {"heads": [["encoder", "self", 1, 1]]}},
    "a layer closed": {"close": {"layers": [["encoder", 1]]}},
}
PAGE = ["attention", "lens", "relevance"]
AT_ONCE = 300  # ms
ANEW = ", anew"


def main() -> None:
    options = parse()
    keep_freed_memory()  # as every command does
    set_threads(1)
    torch.manual_seed(0)
    model = random_masked_lm(options)
    generator = torch.Generator().manual_seed(0)
    rounds = [times_of(model, sentence(options, generator), options.sweeps) for _ in range(options.rounds + 1)][
        1:
    ]  # the first warms up
    bare = statistics.median(one["bare pass"] for one in rounds)
    print(f"bare pass: {1000 * bare:.0f} ms of CPU time, {options.layers} × {options.width}, {options.tokens} tokens")
    for name in rounds[0]:
        if name != "bare pass" and not name.endswith(ANEW):
            ratio = statistics.median(one[name] / one["bare pass"] for one in rounds)
            goal = f", goal {GOALS[name]}" if name in GOALS else ""
            print(f"{name}: {1000 * statistics.median(one[name] for one in rounds):.0f} ms, {ratio:.2f} passes{goal}")
    for name in CHANGES:
        tell_change(name, rounds)


def tell_change(name: str, rounds: list[dict[str, float]]) -> None:
    """A change beside the page that is made anew for it."""
    ratios = sorted(one[name] / one[name + ANEW] for one in rounds)
    change, page = (1000 * statistics.median(one[key] for one in rounds) for key in (name, name + ANEW))
    print(
        f"{name}: {change:.0f} ms (at most {AT_ONCE}), the page anew {page:.0f} ms; ratio of pairs "
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def times_of(model: Model, text: str, sweeps: bool) -> dict[str, float]:
    """CPU seconds of each answer about a sentence that was not read before."""
    subject, seconds = ExploredModel(0, model), dict[str, float]()
    subject.readout  # noqa: B018 (made once in the life of an explorer)
    answers = Responses(Readings([subject], 512))
    inputs = sentence_inputs(model, read_tokens(model, text))

    def timed(name: str, work: Callable[[], bytes]) -> bytes:
        begin = clock()
        answer = work()
        seconds[name] = clock() - begin
        return answer

    def ask(**fields: object) -> Callable[[], bytes]:
        request = parsed({"page": "benchmark", **fields})
        return lambda: (answers.change if request.change else answers.read)(request)

    with torch.no_grad():
        timed("bare pass", lambda: bytes(model.module(**inputs).logits.shape[1]))
    head, _ = unwired(timed("all heads", ask(text=text, want=["attention"])))
    key = head["key"]
    for name, change in CHANGES.items():
        timed(name, ask(key=key, want=["attention"], **change))
        timed(name + ANEW, lambda change=change: page_anew(subject, text, change))
    timed("lens at a place", ask(key=key, want=["lens"], position=4))
    timed("lens everywhere", ask(key=key, want=["lens"]))
    timed("relevance", ask(key=key, want=["relevance"], position=4))
    timed("route", ask(key=key, want=["route"]))
    strips = {"each token hidden": {"want": ["influence"]}, "each head closed": {"sweep": "heads"}} if sweeps else {}
    for name, fields in strips.items():
        request = parsed({"page": "benchmark", "key": key, **fields})
        parts = answers.lines(request)
        timed(f"{name}: first lines", lambda parts=parts: bytes(len(next(parts))))
        timed(f"{name}: the rest", lambda parts=parts: bytes(sum(map(len, parts))))
    return seconds


def page_anew(subject: ExploredModel, text: str, change: dict[str, object]) -> bytes:
    """All that a page shows of a sentence with a change, by an explorer that knows nothing yet."""
    answers = Responses(Readings([subject], 512))
    plain, _ = unwired(answers.read(parsed({"page": "benchmark", "text": text, "want": ["attention"]})))
    return answers.change(parsed({"page": "benchmark", "key": plain["key"], "want": PAGE, "position": 4, **change}))


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
    parser.add_argument("--no-sweeps", dest="sweeps", action="store_false", help="without strips and sweeps of heads")
    return parser.parse_args()


if __name__ == "__main__":
    main()
