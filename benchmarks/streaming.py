"""Hidden states and attention statistics of all layers: one streaming pass against the loops that users write.

    .venv/bin/python benchmarks/streaming.py                 # about 5 minutes on 2 cores
    .venv/bin/python benchmarks/streaming.py --sentences 64

A 6-layer encoder of width 384 with 12 heads (random weights) reads sentences of mixed length (4 to 120 tokens). Both
loops use eager attention and `output_hidden_states=True, output_attentions=True`: one sentence at a time, or 32 padded
in corpus order with everything stored and reduced at the end. Both compute what the pass computes: the mean state of
each layer, and each head's confidence and entropy. Times are the best of three, interleaved: on the wall, or with
`--threads 1` of the process, which other work on the machine disturbs least. Memory is the growth of a fresh process's
peak resident size during the loop. The floor is the time of the blocks' matrix products alone, as `x @ w` computes them
and, where the package uses another library for them (`models.fast_linear`), by that.

On two quiet cores of an AMD EPYC (Zen 5), 256 sentences: in float32 3.0 times as fast as one by one and 3.6 times as
fast as 32 padded and stored, in bf16 5.3 and 6.2 times (both against float32); 39 MB of extra memory against 796; the
blocks' products as `x @ w` take 1.02 times the whole pass in float32, by the faster library half of it. On two shared
cores of an Intel Xeon (Cascade Lake, without bf16 units, memory at 3 GB/s) 3.8 and 2.1 times in float32; bf16 is slower
there.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import torch
from _memory import peak_megabytes
from _timing import best_of, clock

WIDTH, LAYERS, HEADS = 384, 6, 12
BATCH = 32


def texts(number: int) -> list[str]:
    """Sentences whose lengths spread as those of running text do."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(3.1, 0.6, number).round().astype(int), 4, 120)
    return [" ".join(f"w{i}" for i in generator.integers(0, 2000, length)) for length in lengths]


def build(precision: str):
    """The model, its tokenizer and the corpus."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from infoflow.models import load_model

    vocabulary = {name: i for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])}
    vocabulary |= {f"w{i}": i + 4 for i in range(2000)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
    )
    module = BertModel(config, add_pooling_layer=False)
    return load_model(module.to(torch.bfloat16 if precision == "bf16" else torch.float32), tokenizer=tokenizer)


class Means:
    """Mean state per layer, and confidence and entropy per head, over all tokens but the special ones."""

    def __init__(self) -> None:
        self.states = torch.zeros(LAYERS + 1, WIDTH, dtype=torch.float64)
        self.heads = torch.zeros(2, LAYERS, HEADS, dtype=torch.float64)
        self.count = 0

    def add(self, hidden: list[torch.Tensor], attention: list[torch.Tensor], valid: torch.Tensor) -> None:
        for layer, state in enumerate(hidden):
            self.states[layer] += state[valid].float().sum(0).double()
        for layer, weights in enumerate(attention):
            weights = weights.float().transpose(1, 2)[valid]  # (token, head, key)
            self.heads[0, layer] += weights.amax(-1).sum(0)
            self.heads[1, layer] -= torch.xlogy(weights, weights).sum(-1).sum(0)
        self.count += int(valid.sum())


def user_loop(model, sentences: list[str], size: int, store: bool) -> Means:
    """Batches of `size` in corpus order; with `store` everything is kept and reduced at the end."""
    module, means, kept = model.module, Means(), []
    module.set_attn_implementation("eager")
    for start in range(0, len(sentences), size):
        batch = model.tokenizer(sentences[start : start + size], return_tensors="pt", padding=True)
        with torch.no_grad():
            output = module(
                **{name: batch[name] for name in ("input_ids", "attention_mask")},
                output_hidden_states=True,
                output_attentions=True,
            )
        valid = batch["input_ids"] > 3
        kept.append((output.hidden_states, output.attentions, valid))
        if not store:
            means.add(*kept.pop())
    for each in kept:
        means.add(*each)
    return means


def streaming(model, corpus) -> Means:
    """The same through `measure`'s pass: batches by length under a token budget, statistics inside the forward pass."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from infoflow.flow._pass import Pass, PassOptions
    from infoflow.heads import Confidence, Entropy

    class StateMeans(_state_means_class()):
        pass

    means = Means()
    measures = [StateMeans(means), Confidence(), Entropy()]
    with TemporaryDirectory() as folder:
        run = Pass(model, corpus, measures, PassOptions(), Path(folder))
        run.run()
    means.heads[0] = torch.tensor(measures[1].result()["value"].to_numpy().reshape(LAYERS, HEADS)) * means.count
    means.heads[1] = torch.tensor(measures[2].result()["value"].to_numpy().reshape(LAYERS, HEADS)) * means.count
    return means


def _state_means_class() -> type:
    from infoflow.flow import Measure
    from infoflow.results import TableSchema

    class StateMeans(Measure):
        table = TableSchema(name="state_means", version=1, description="mean states", columns=())
        needs = frozenset({"hidden"})

        def __init__(self, means: Means) -> None:
            self._means = means

        def update(self, activations) -> None:
            self._means.add(activations.hidden["encoder"], [], activations.streams["encoder"].valid)

        def merge(self, other) -> None: ...
        def state_dict(self) -> dict: ...
        def load_state_dict(self, state) -> None: ...
        def result(self): ...

    return StateMeans


def floor_seconds(model, tokens: int, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> float:
    """Time of the matrix products that the blocks cannot do without, on as many tokens at once as a batch may hold."""
    rows = 4096
    x = torch.randn(rows, WIDTH, dtype=model.module.dtype)
    weights = [torch.randn(n, WIDTH, dtype=x.dtype) for n in (3 * WIDTH, WIDTH, 4 * WIDTH)]
    wide, back = torch.randn(rows, 4 * WIDTH, dtype=x.dtype), torch.randn(WIDTH, 4 * WIDTH, dtype=x.dtype)
    times = []
    for _ in range(5):
        started = clock()
        for weight in weights:
            product(x, weight)
        product(wide, back)
        times.append(clock() - started)
    return min(times) * LAYERS * tokens / rows


def compare(number: int, rounds: int) -> None:
    from infoflow.corpus import Corpus
    from infoflow.models import fast_linear

    sentences = texts(number)
    corpus = corpus_of(sentences)
    assert isinstance(corpus, Corpus)
    reference: Means | None = None
    bases: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        model = build(precision)
        by_length = sorted(sentences, key=lambda text: len(text.split()))
        runs = {
            "streaming": lambda model=model: streaming(model, corpus),
            "careful": lambda model=model, texts=by_length: user_loop(model, texts, BATCH, store=False),
        }
        if precision == "fp32":  # what one writes without thinking of precision, length and memory
            runs |= {
                "one by one": lambda model=model: user_loop(model, sentences, 1, store=False),
                "32 padded, stored": lambda model=model: user_loop(model, sentences, BATCH, store=True),
            }
        seconds, results = best_of(rounds, runs)
        bases = bases or seconds
        reference = reference or results["one by one"]
        tokens = sum(len(sentence.split()) + 2 for sentence in sentences)
        floors = [floor_seconds(model, tokens, product) for product in (lambda x, w: x @ w.mT, fast_linear)]
        plain, fast = (floor / seconds["streaming"] for floor in floors)
        print(
            f"{precision}: streaming {seconds['streaming']:.2f} s, "
            f"{seconds['careful'] / seconds['streaming']:.2f} times as fast as the careful loop, "
            f"{bases['one by one'] / seconds['streaming']:.2f} times as fast as one by one, "
            f"{bases['32 padded, stored'] / seconds['streaming']:.2f} times as fast as 32 padded and stored "
            f"(both fp32); {plain:.0%} of the floor of plain matrix products, {fast:.0%} of the fastest ones'"
        )
        for name, means in results.items():
            cosine = torch.cosine_similarity(means.states, reference.states, dim=1).min()
            gap = ((means.heads[0] / means.count) - (reference.heads[0] / reference.count)).abs().max()
            print(f"  {name}: pooled states cosine {cosine:.6f}, confidence within {gap:.5f} of one by one in fp32")


def corpus_of(sentences: list[str]):
    from datasets import Dataset

    from infoflow.corpus import Corpus

    return Corpus.from_dataset(Dataset.from_dict({"text": sentences}), text="text")


def memory(which: str, number: int) -> None:
    """Print how far the peak grows while `which` runs, in a process of its own."""
    sentences = texts(number)
    corpus, model = corpus_of(sentences), build("fp32")
    runs = {
        "streaming": lambda part, part_corpus: streaming(model, part_corpus),
        "one": lambda part, part_corpus: user_loop(model, part, 1, store=False),
        "padded": lambda part, part_corpus: user_loop(model, part, BATCH, store=True),
    }
    runs[which](sentences[:8], corpus.select(np.arange(8)))  # imports and kernels
    before = peak_megabytes()
    runs[which](sentences, corpus)
    print(round(peak_megabytes() - before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", choices=["streaming", "one", "padded"], help=argparse.SUPPRESS)
    options = parser.parse_args()

    from infoflow.foundation import make_display, set_threads, use_display

    set_threads(options.threads)
    with use_display(make_display("silent")):
        if options.memory:
            memory(options.memory, options.sentences)
            return
        compare(options.sentences, options.rounds)
        for which in ("streaming", "one", "padded"):
            command = [sys.executable, __file__, "--memory", which, "--sentences", "256"]
            grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            print(f"extra memory on 256 sentences, {which}: {grown} MB")


if __name__ == "__main__":
    main()
