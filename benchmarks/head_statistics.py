"""All statistics of heads in one streaming pass, against storing every attention weight and computing afterwards.

    .venv/bin/python benchmarks/head_statistics.py --sentences 2000    # BERT-base's shape, about 5 minutes on 2 cores
    .venv/bin/python benchmarks/head_statistics.py                     # 128 sentences
    .venv/bin/python benchmarks/head_statistics.py --shape small

A BERT with random weights reads sentences of the corpus `grammar`, which have trees. Streaming is `measure`: batches by
length, attention reduced and dropped batch by batch. The other way is what users write: batches of 32 in corpus order,
eager attention with `output_attentions=True`, everything kept; then the very same reductions. Statistics: confidence,
entropy, positions, surface, both conventions of relations, rare tokens, distances of heads (on 300 sentences).
Times are processor seconds, the best of `--rounds`, interleaved; memory is the growth of a fresh process's peak
resident size. Seen for 2,000 sentences of BERT-base's shape, two threads of an AMD EPYC with AVX-512: 38 CPU seconds
against 133 (3.5 times as many), 146 MB against 1,416.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

SHAPES = {"base": (768, 12, 12), "small": (384, 6, 12)}  # width, layers, heads
BATCH = 32


def build(shape: str, sentences: int):
    """The model and the corpus."""
    from transformers import BertConfig, BertModel

    from infoflow.corpus import generate_grammar, train_tokenizer
    from infoflow.models import load_model

    width, layers, heads = SHAPES[shape]
    corpus = generate_grammar(sentences, seed=0)
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=4000)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return load_model(BertModel(config, add_pooling_layer=False), tokenizer=tokenizer), corpus


def statistics():
    from infoflow.heads import (
        Confidence,
        Entropy,
        HeadDistance,
        PositionalScores,
        RareTokenScores,
        RelationScores,
        SurfaceStatistics,
    )

    return [
        Confidence(),
        Entropy(),
        PositionalScores(offsets=(-2, -1, 1, 2)),
        SurfaceStatistics(),
        RelationScores(minimum=20),
        RareTokenScores(),
        HeadDistance(),
    ]


def streaming(model, corpus) -> dict[str, np.ndarray]:
    """One pass; values by table."""
    from infoflow.flow._pass import Pass, PassOptions

    measures = statistics()
    with tempfile.TemporaryDirectory() as folder:
        Pass(model, corpus, measures, PassOptions(), Path(folder)).run()
    return results(measures)


def stored(model, corpus) -> dict[str, np.ndarray]:
    """Everything is kept, then reduced."""
    from infoflow.flow import Activations, Reader

    measures, kept = statistics(), []
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=False)
    model.module.set_attn_implementation("eager")
    try:
        for rows in np.split(np.arange(len(corpus)), range(BATCH, len(corpus), BATCH)):
            batch = reader.padded(rows)
            stream = batch.streams["encoder"]
            with torch.no_grad():
                output = model.module(
                    input_ids=stream.input_ids, attention_mask=stream.real.long(), output_attentions=True
                )
            kept.append((batch, output.attentions))
    finally:
        model.module.set_attn_implementation("sdpa")
    for measure in measures:
        measure.prepare(reader)
    for batch, attention in kept:
        activations = Activations(
            model=model,
            regime="clean",
            sentence_ids=batch.sentence_ids,
            blocks=batch.blocks,
            streams=batch.streams,
            attention={("encoder", "self"): list(attention)},
        )
        for measure in measures:
            measure.update(activations)
    return results(measures)


def results(measures) -> dict[str, np.ndarray]:
    frames = {measure.name: measure.result() for measure in measures}
    return {
        name: frame["distance" if name == "head_distance" else "value"].to_numpy() for name, frame in frames.items()
    }


WAYS = {"streaming": streaming, "stored": stored}


def memory(way: str, shape: str, sentences: int) -> None:
    """Print how far the peak grows while `way` runs, in a process of its own."""
    model, corpus = build(shape, sentences)
    WAYS[way](model, corpus.select(np.arange(8)))  # imports and kernels
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: building the model had a higher one
    before = _kilobytes("VmRSS")
    WAYS[way](model, corpus)
    print((_kilobytes("VmHWM") - before) // 1024)


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def compare(shape: str, sentences: int, rounds: int) -> None:
    model, corpus = build(shape, sentences)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    found = {}
    for _ in range(rounds):
        for way, run in WAYS.items():
            started = time.process_time()
            found[way] = run(model, corpus)
            seconds[way].append(time.process_time() - started)
    best = {way: min(times) for way, times in seconds.items()}
    print(
        f"{sentences} sentences, {shape} shape: streaming {best['streaming']:.1f} CPU seconds, stored "
        f"{best['stored']:.1f} ({best['stored'] / best['streaming']:.2f} times as many)"
    )
    for name, values in found["streaming"].items():
        # Shares of queries by the key of the largest weight: in batches of other sizes float32 decides a tie of random
        # weights otherwise, one query of thousands in a few rows.
        apart = np.abs(values - found["stored"][name])
        assert np.array_equal(np.isnan(values), np.isnan(found["stored"][name])), name
        assert np.nanmax(apart) < 1e-3, (name, np.nanmax(apart))
        assert np.nanmean(apart > 1e-5) < 0.01, name
        print(f"  {name}: {len(values):,} rows, largest difference {np.nanmax(apart):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--shape", choices=list(SHAPES), default="base")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", choices=list(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()

    from infoflow.foundation import make_display, set_threads, use_display

    set_threads(options.threads)
    with use_display(make_display("silent")):
        if options.memory:
            memory(options.memory, options.shape, options.sentences)
            return
        compare(options.shape, options.sentences, options.rounds)
        for way in WAYS:
            command = [sys.executable, __file__, "--memory", way, "--shape", options.shape]
            command += ["--sentences", str(options.sentences), "--threads", str(options.threads)]
            grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            print(f"extra memory, {way}: {grown} MB")


if __name__ == "__main__":
    main()
