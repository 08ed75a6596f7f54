"""Influence of one token in every block: all blocks from one pass against re-encoding the lower layers.

    .venv/bin/python benchmarks/influence.py             # about half a minute on 2 cores
    .venv/bin/python benchmarks/influence.py --sentences 1000 --width 256

Prints ratios of one run, on one thread. Three ways give the same states, which is checked:
all blocks, batched: one pass, each block run again on its own input without the token (`rerun_blocks`);
block by block, batched: for each block a pass of the whole model with the token removed there;
block by block and sentence by sentence: the same without batches.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch


def tiny_model(corpus, width: int):
    """An untrained masked LM with six layers."""
    from infoflow.corpus import train_tokenizer
    from infoflow.models import load_model
    from infoflow.objectives import Vocabulary, make_objective
    from infoflow.training import ModelConfig, build_models

    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=400)
    config = ModelConfig(width=width, feedforward=4 * width)
    modules = build_models([make_objective("masked-lm")], config, Vocabulary.from_tokenizer(tokenizer))
    return load_model(modules["masked-lm"], tokenizer=tokenizer)


def batches(reader, token_budget: int) -> Iterator[tuple]:
    """Padded sentences of two tokens or more, and the token that each of them loses: its first one."""
    for rows in reader.batches(token_budget):
        batch = reader.padded(rows)
        valid = batch.streams["encoder"].valid
        kept = (valid.sum(dim=1) > 1).nonzero().flatten().tolist()
        if kept:
            batch = reader.padded(rows[kept])
            yield batch, batch.streams["encoder"].valid.int().argmax(dim=1)


def all_blocks(reader, token_budget: int) -> dict[int, list[np.ndarray]]:
    """By sentence, each block's output without the token."""
    from infoflow.flow import forward
    from infoflow.models import rerun_blocks, without_token

    found = {}
    for batch, token in batches(reader, token_budget):
        blocks = rerun_blocks(
            reader.model,
            "encoder",
            [partial(without_token, token=token)],
            lambda batch=batch: forward(reader.model, batch),
        )
        real = batch.streams["encoder"].real
        for place, sentence in enumerate(batch.sentence_ids.tolist()):
            found[sentence] = [block.edited[0][place, real[place]].numpy() for block in blocks]
    return found


def block_by_block(reader, token_budget: int) -> dict[int, list[np.ndarray]]:
    """The same from a pass of the whole model for each block, beside the pass that keeps the token."""
    from infoflow.flow import forward
    from infoflow.models import tap, without_token

    found = {}
    layers = range(len(reader.model.anatomy.stack("encoder").layers))
    for batch, token in batches(reader, token_budget):
        forward(reader.model, batch)
        real = batch.streams["encoder"].real
        for layer in layers:

            def edit(call, layer=layer, token=token):
                return without_token(call, token) if call.layer == layer else None

            with tap(reader.model, hidden=True, on_attention=edit) as seen:
                forward(reader.model, batch)
            for place, sentence in enumerate(batch.sentence_ids.tolist()):
                states = seen.hidden["encoder"][layer + 1][place, real[place]].numpy()
                found.setdefault(sentence, []).append(states)
    return found


def timed(way) -> tuple[float, dict[int, list[np.ndarray]]]:
    with torch.inference_mode():
        started = time.perf_counter()
        found = way()
        return time.perf_counter() - started, found


def largest_difference(first: dict, second: dict) -> float:
    return max(float(np.abs(a - b).max()) for key in first for a, b in zip(first[key], second[key], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--width", type=int, default=128)
    arguments = parser.parse_args()

    from infoflow.corpus import generate_grammar
    from infoflow.flow import Reader
    from infoflow.foundation import set_threads

    set_threads(1)
    corpus = generate_grammar(arguments.sentences)
    reader = Reader(tiny_model(corpus, arguments.width), corpus, max_length=512, seed=0, decoder=False)
    timed(lambda: all_blocks(reader, 8192))  # warm up
    reuse, expected = timed(lambda: all_blocks(reader, 8192))
    print(f"all blocks, batched: {reuse:.2f} s for {len(expected):,} tokens in 6 blocks")
    for name, budget in (("block by block, batched", 8192), ("block by block, sentence by sentence", 1)):
        seconds, found = timed(lambda budget=budget: block_by_block(reader, budget))
        difference = largest_difference(expected, found)
        assert difference < 1e-3, difference
        print(f"{name}: {seconds:.2f} s, ratio {seconds / reuse:.1f}, largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
