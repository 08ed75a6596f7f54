"""Importances and routes of all predictions, against a loop that computes every part of every state in batches.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/routes.py

A GPT-2 of 4 layers, width 128 and 4 heads (random weights) reads texts of 6 to 40 words. The loop sorts them by length,
holds all parts of a batch (sentence, head, query, key, width), and follows all routes of a batch together. It has
neither error bars nor controls nor padding; the measure has error bars and a control, and bounds its memory.

On one busy core, 400 texts: 2.6 CPU seconds for the loop, 1.1 for the measure (.4 times), equal to 3e-8.
"""

import argparse

import numpy as np
import torch
from _gpt2 import corpus_of, model_of
from _timing import best_of
from torch import Tensor

import infoflow
from infoflow.corpus import Corpus
from infoflow.flow import measure
from infoflow.routes import RouteImportance, part_importance

LAYERS, WIDTH, HEADS, BATCH, LEAST = 4, 128, 4, 8, 0.04


def plain(model: infoflow.models.Model, corpus: Corpus) -> np.ndarray:
    """Mean importance of each head, (layer, head), then the share of routes with it, in the same shape."""
    blocks, seen = model.module.transformer.h, {}
    handles = [
        part.register_forward_hook(lambda module, args, output, key=(number, name): seen.__setitem__(key, output))
        for number, block in enumerate(blocks)
        for name, part in (("values", block.attn.c_attn), ("written", block.attn.c_proj), ("feed", block.mlp))
    ]
    ids = sorted((model.tokenizer(one.text)["input_ids"] for one in corpus), key=len)
    sums, total = torch.zeros(2, LAYERS, HEADS), 0
    with torch.inference_mode():
        for length in sorted({len(one) for one in ids}):
            equal = torch.tensor([one for one in ids if len(one) == length])
            for batch in equal.split(BATCH):
                sums += _of_batch(model, seen, batch)
                total += len(batch) * (length - 1)
    for handle in handles:
        handle.remove()
    return (sums / total).numpy()


def _of_batch(model: infoflow.models.Model, seen: dict, ids: Tensor) -> Tensor:
    given = model.module(ids, output_attentions=True, output_hidden_states=True, use_cache=False)
    heads, kept, feeds = [], [], []
    for number, block in enumerate(model.module.transformer.h):
        before = given.hidden_states[number]
        middle = before + seen[number, "written"]
        values = seen[number, "values"].chunk(3, -1)[2].unflatten(-1, (HEADS, -1)).transpose(1, 2)
        written = values @ block.attn.c_proj.weight.unflatten(0, (HEADS, -1))
        parts = torch.einsum("bhts,bhsd->bthsd", given.attentions[number], written).flatten(2, 3)
        shares = part_importance(torch.cat([parts, before.unsqueeze(2)], 2), middle)
        heads.append(shares[..., :-1].unflatten(2, (HEADS, -1)))
        kept.append(shares[..., -1])
        feed = seen[number, "feed"]
        feeds.append(part_importance(torch.stack([feed, middle], 2), middle + feed))
    tokens = ids.shape[1]
    reached = torch.eye(tokens, dtype=torch.bool)[:-1].expand(len(ids), -1, -1)  # prediction, token
    routes = torch.zeros(LAYERS, HEADS)
    for number in reversed(range(LAYERS)):
        by_feed, passed = (feeds[number] >= LEAST).unbind(-1)
        reached = reached & (by_feed | passed).unsqueeze(1)
        edges = heads[number] >= LEAST  # sentence, query, head, key
        found = torch.einsum("bpt,bths->bphs", reached.float(), edges.float()) > 0
        routes[number] = found.any(3).sum((0, 1))
        reached = found.any(2) | (reached & (kept[number] >= LEAST).unsqueeze(1))
    return torch.stack([torch.stack([one[:, :-1].sum((0, 1, 3)) for one in heads]), routes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    corpus = corpus_of(options.texts)
    model = model_of(corpus, n_embd=WIDTH, n_layer=LAYERS, initializer_range=0.1, attn_implementation="eager")
    seconds, found = best_of(
        options.rounds,
        {
            "loop": lambda: plain(model, corpus),
            "measure": lambda: measure(model, corpus, [RouteImportance(threshold=LEAST)])["route_importance"],
        },
    )
    table = found["measure"]
    table = table[table["part"] == "head"].sort_values(["measure", "layer", "head"])  # importance, then route
    off = np.abs(table["value"].to_numpy().reshape(2, LAYERS, HEADS) - found["loop"]).max(axis=(1, 2))
    print(f"largest difference: importance {off[0]:.1e}, share of routes {off[1]:.1e}")
    ratio = seconds["measure"] / seconds["loop"]
    print(f"loop {seconds['loop']:.1f} s, measure {seconds['measure']:.1f} s: {ratio:.2f} times the loop")


if __name__ == "__main__":
    main()
