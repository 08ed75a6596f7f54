"""Pairs of tiny encoders that read the same sentences."""

import dataclasses

import pytest


@pytest.fixture(scope="session")
def masked(matched_models):
    """A masked LM of width 32 with two layers, random weights."""
    return dataclasses.replace(matched_models["masked-lm"], name="masked-lm/seed-0")


@pytest.fixture(scope="session")
def translator(matched_models):
    """A translation model that began as the same encoder."""
    return dataclasses.replace(matched_models["translation"], name="translation/seed-0")


@pytest.fixture(scope="session")
def narrow(parallel_corpus):
    """An encoder of width 16 and three layers, with a tokenizer that cuts words into other pieces."""
    from infoflow.corpus import train_tokenizer
    from infoflow.models import load_model
    from infoflow.objectives import MaskedLM, Vocabulary
    from infoflow.training import ModelConfig, build_models

    tokenizer = train_tokenizer((sentence.text for sentence in parallel_corpus), vocab_size=32)
    config = ModelConfig(width=16, layers=3, heads=2, feedforward=32, initializer_range=0.2, positions=64)
    modules = build_models([MaskedLM()], config, Vocabulary.from_tokenizer(tokenizer), seed=1)
    return dataclasses.replace(load_model(modules["masked-lm"], tokenizer=tokenizer), name="narrow")
