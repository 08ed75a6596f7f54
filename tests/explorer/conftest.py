"""A tiny model of each kind, and an explorer asked without a network."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def models(matched_models):
    """By kind; weights are random and large, so that heads differ."""
    import copy

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from infoflow.models import load_model, remove_heads

    tokenizer = matched_models["causal-lm"].tokenizer
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    grouped = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), intermediate_size=32, initializer_range=0.3, **sizes)
    )
    masked = matched_models["masked-lm"]
    pruned = copy.deepcopy(masked.module)
    remove_heads(pruned, masked.anatomy, {("encoder", "self", 0): [1, 3]})
    return {
        "masked": masked,
        "causal": matched_models["causal-lm"],
        "translation": matched_models["translation"],
        "grouped": load_model(grouped, tokenizer=tokenizer),
        "pruned": load_model(pruned, tokenizer=masked.tokenizer),
    }


@pytest.fixture
def explorers():
    """Makes explorers of some models, and ends them."""
    pytest.importorskip("starlette", reason='the extra is not installed: pip install "infoflow[explore]"')
    from infoflow.explorer import Explorer

    made = []

    def make(*given):
        made.append(Explorer(given))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def answers(models, explorers):
    """Makes what asks an explorer of a model."""
    from asking import Asker

    return lambda kind: Asker(explorers(models[kind]))
