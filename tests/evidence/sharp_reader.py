"""A reader whose heads differ, though nobody trained it."""

import torch
from retrieval.tiny_arms import tiny_reader, tiny_world

from infoflow.evidence import evidence_heads, fact_inputs
from infoflow.foundation import stream


def facts_of_kind(world, kind, limit):
    """The facts that a measure draws."""
    facts = world.of_kind(kind)
    chosen = stream("evidence-facts", 0, kind).permutation(len(facts))[:limit]
    return [facts[place] for place in sorted(chosen)]


def heads_by_copying(reader, kind, facts):
    """Heads of the encoder, the one that copies most from gold passages first; ties by attention on the object."""
    world, tokenizer, _ = tiny_world()
    table = evidence_heads(reader, world, tokenizer, kinds=(kind,), documents=("gold",), facts=facts)
    means = table[table["weight"] == -1].pivot_table(index=["layer", "head"], columns="metric", values="value")
    ranked = means.sort_values(["copy", "object"], ascending=False).index
    return [("encoder", "self", layer, head) for layer, head in ranked]


def sharp_reader(seed: int = 0):
    """Its matrices are ten times as large as those of an untrained one, so that attention is not even."""
    reader = tiny_reader(seed).eval()
    with torch.no_grad():
        for parameter in reader.bert.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10)
    return reader


def inputs_of(document="gold", kinds=("trained",), num=None, **options):
    world, tokenizer, _ = tiny_world()
    return fact_inputs(world, tokenizer, world.of_kind(*kinds)[:num], document, **options)
