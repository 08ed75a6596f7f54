"""A reader with fewer positions than question and passage have tokens reads the beginning of the passage."""

from functools import cache

import numpy as np
import pytest

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import FactConfig, Vocabulary, generate_facts
from infoflow.evidence import attention_ranking, evidence_ablation, evidence_flow, evidence_heads, knowledge
from infoflow.objectives import make_objective
from infoflow.retrieval import Library, Passages, build_retriever, retriever_config
from infoflow.subjects.retrieval.objectives import retrieval_model

pytestmark = pytest.mark.slow

POSITIONS = 24
SMALL = {"facts": 6, "kinds": ("trained",)}


@cache
def short_reader():
    world = generate_facts(FactConfig(entities=12, relations=4, objects=4, weights=(1, 2)))
    tokenizer = world.tokenizer()
    shape = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=POSITIONS, dropout=0.0)
    return build("bert", "encoder", shape, Vocabulary.from_tokenizer(tokenizer), seed=0), world, tokenizer


def test_passages_are_longer_than_it_reads():
    _, world, tokenizer = short_reader()
    rows = [len(tokenizer(one["text"]).input_ids) for one in world.passages()]
    assert max(rows) > POSITIONS - 9


@pytest.mark.parametrize("measure", [evidence_heads, evidence_flow, evidence_ablation, attention_ranking])
def test_it_is_looked_at_as_it_was_trained(measure):
    reader, world, tokenizer = short_reader()
    table = measure(reader, world, tokenizer, **SMALL)
    assert len(table) > 0
    assert np.isfinite(table["value"]).any()


def test_a_retriever_with_as_few_positions_finds_passages():
    reader, world, tokenizer = short_reader()
    retriever = build_retriever(retriever_config(reader.config, vector_width=8), seed=1)
    library = Library(Passages.from_rows(world.passages()), tokenizer, POSITIONS)
    arm = retrieval_model(make_objective("retrieve-learned", k=2), reader, library, retriever)
    table = knowledge(arm, world, tokenizer, k=2)
    assert "own" in set(table["document"])
