"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import torch
from transformers import BertConfig, BertForMaskedLM

from infoflow import heads
from infoflow.models import load_model


def test_examples():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    model, attempted = load_model(BertForMaskedLM(config)), 0
    for name in sorted(module.name for module in pkgutil.iter_modules(heads.__path__)):
        module = importlib.import_module(f"infoflow.heads.{name}")
        results = doctest.testmod(module, extraglobs={"torch": torch, "model": model})
        assert results.failed == 0, name
        attempted += results.attempted
    assert attempted >= 4
