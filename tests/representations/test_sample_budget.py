"""The byte budget of the token sample: tables say what it kept, and a similarity of too few tokens is no number."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from infoflow.corpus import load_corpus, train_tokenizer
from infoflow.flow import PassOptions, compare, measure
from infoflow.models import load_model
from infoflow.representations import (
    DistanceDistribution,
    IdentityNeighbours,
    LayerDistance,
    ModelDistance,
    SpaceSimilarity,
    WordGeometry,
)

WIDTH, STATES = 16, 2


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("grammar:80")


@pytest.fixture(scope="module")
def models(corpus):
    tokenizer = train_tokenizer(list(corpus.column("text")), 100)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        made.append(replace(load_model(BertForMaskedLM(config), tokenizer=tokenizer), name=f"model {seed}"))
    return made


def budget(tokens):
    return PassOptions(sample_bytes=tokens * WIDTH * STATES * 4)


def test_tables_say_how_many_tokens_were_requested_and_kept(models, corpus):
    plain = {"occurrences": 500}
    measures = [LayerDistance(**plain), WordGeometry(**plain), DistanceDistribution(**plain)]
    measures += [IdentityNeighbours(k=2, **plain)]
    for kept in (400, 500):
        tables = measure(models[0], corpus, measures, budget(kept))
        for frame in tables.values():
            assert frame["tokens_requested"].eq(500).all()
            assert frame["tokens_kept"].between(kept - 1, kept).all()
    assert tables["layer_distance"]["count"].eq(500).all()


def test_similarities_of_too_few_tokens_are_left_out_with_the_reason(models, corpus):
    few = 2 * WIDTH
    with pytest.warns(UserWarning, match=r"PWCCA of 3\d tokens in 16 dimensions .* it is near 1"):
        tables = measure(models[0], corpus, [LayerDistance()], budget(few))
    assert tables["layer_distance"][["value", "low", "high", "baseline"]].isna().all(axis=None)
    between = [ModelDistance(), SpaceSimilarity(metrics=("rsa", "pwcca"))]
    with pytest.warns(UserWarning, match="raise analysis.sample_bytes"):
        tables = compare(models, corpus, between, budget(few))
    assert tables["model_distance"]["value"].isna().all()
    assert tables["model_distance"]["tokens_kept"].between(few - 1, few).all()
    assert tables["space_similarity"].groupby("metric")["value"].count().to_dict() == {"pwcca": 0, "rsa": STATES**2}


def test_more_tokens_than_two_for_each_dimension_have_a_similarity(models, corpus):
    with pytest.warns(UserWarning, match="biased towards similarity"):
        frame = measure(models[0], corpus, [LayerDistance()], budget(4 * WIDTH))["layer_distance"]
    assert np.isfinite(frame[["value", "low", "high"]].to_numpy()).all()
