"""Masked LMs of other families: shared layers, no segments, attention in code of their own."""

import numpy as np
import pytest
import torch
import transformers
from evidence.sharp_reader import inputs_of
from retrieval.tiny_arms import tiny_world

from infoflow.evidence import TokenPart, evidence_ablation, evidence_flow, evidence_heads
from infoflow.models import load_model
from infoflow.subjects.retrieval.measures._evidence_flow import Restored, subject_noise, traced_answers
from infoflow.subjects.retrieval.measures._knock_out import answers_without_edges, edges

READERS = {
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {"embedding_size": 8}),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {"type_vocab_size": 1}),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {}),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", {"relative_attention": True, "pos_att_type": "c2p|p2c"}),
}


def reader_of(family: str):
    _, tokenizer, _ = tiny_world()
    torch.manual_seed(0)
    model, config, options = READERS[family]
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if family == "distilbert":
        shape = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    settings = {**shape, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "pad_token_id": 0, **options}
    module = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    return module


@pytest.mark.parametrize("family", READERS)
def test_without_any_way_from_the_evidence_it_might_be_any_other(family):
    model, found, open_ways = load_model(reader_of(family)), [], []
    for document in ("gold", "conflict"):
        inputs = inputs_of(document, num=4)
        forbidden = edges(inputs, "query→evidence")
        clean, without = answers_without_edges(model, inputs, [(forbidden, frozenset([0, 1]))])
        found.append(without[0])
        open_ways.append(clean)
    assert np.allclose(found[0], found[1], atol=1e-4)
    assert not np.allclose(open_ways[0], open_ways[1], atol=1e-3)


@pytest.mark.parametrize("family", READERS)
def test_restoring_everything_at_the_mask_regains_everything(family):
    model, inputs = load_model(reader_of(family)), inputs_of(num=4)
    every = tuple((site, layer) for site in ("ffn", "attention") for layer in range(2))
    clean, noisy, found = traced_answers(
        model, inputs, subject_noise(model, inputs, 0), [Restored(every, inputs.parts == TokenPart.MASK)]
    )
    assert np.allclose(found[0], clean, atol=1e-4)
    assert not np.allclose(noisy, clean, atol=1e-3)


def test_tables_of_another_family():
    world, tokenizer, _ = tiny_world()
    reader = reader_of("roberta")
    heads = evidence_heads(reader, world, tokenizer, facts=2)
    groups = heads[heads["metric"].isin(["evidence", "question", "special", "itself"]) & (heads["weight"] == -1)]
    assert np.allclose(groups.groupby(["facts", "layer", "head"])["value"].sum(), 1)
    assert len(evidence_flow(reader, world, tokenizer, facts=2, kinds=("trained",)))
    assert np.isfinite(evidence_ablation(reader, world, tokenizer, facts=2, draws=1)["value"]).all()
