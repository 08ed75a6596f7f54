"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from infoflow.models import load_model

EXAMPLES = {
    "infoflow.heads": 4,
    "infoflow.representations": 6,
    "infoflow.subjects.alignment.measures": 3,
    "infoflow.subjects.allocation.measures": 3,
    "infoflow.subjects.probing.measures": 6,
}
"""How many each package has at least."""


@pytest.mark.parametrize(("package", "least"), EXAMPLES.items())
def test_examples(package, least):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    given, attempted = {"np": np, "torch": torch, "model": load_model(BertForMaskedLM(config))}, 0
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        results = doctest.testmod(importlib.import_module(f"{package}.{found.name}"), extraglobs=given)
        assert results.failed == 0, found.name
        attempted += results.attempted
    assert attempted >= least
