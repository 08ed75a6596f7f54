"""A reader whose heads differ, though nobody trained it."""

import torch
from retrieval.tiny_arms import tiny_reader, tiny_world

from infoflow.evidence import fact_inputs
from infoflow.evidence._asked import facts_of_kind as facts_of_kind  # which facts a measure draws


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
