"""What a study may take from its models: nothing else changes, a training leaves it away, and it is read again so."""

import dataclasses

import pytest
import torch
from objectives.test_every_objective import batch_for
from objectives.zoo import VOCABULARY, mixed
from torch import nn

from infoflow.architectures import FAMILIES, ModelConfig, build
from infoflow.models import load_model
from infoflow.objectives import make_objective

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64, dropout=0.0)
UNTIED = dataclasses.replace(SHAPE, tie_word_embeddings=False)
PLAIN_NORMS = dataclasses.replace(SHAPE, elementwise_affine=False)
CASES = [(family, layout) for family in ("plain-bert", "bert", "gpt2", "t5") for layout in FAMILIES[family].layouts]
TRAINED = [("causal-lm", "decoder"), ("masked-lm", "encoder"), ("translation", "encoder-decoder")]


def made(family: str, layout: str, config: ModelConfig):
    return build(family, layout, config, VOCABULARY, seed=3)


def step(model, name: str) -> None:
    """An update of the objective on its batch."""
    objective = make_objective(name)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1.0)
    batch = batch_for(objective, [mixed(number, number) for number in (17, 31)])
    (term,) = objective.loss(model, batch, batch.noise).values()
    (term.total / term.count).backward()
    optimizer.step()


@pytest.mark.parametrize(("family", "layout"), CASES)
@pytest.mark.parametrize("config", [UNTIED, PLAIN_NORMS], ids=["untied", "norms"])
def test_every_family_begins_with_the_same_values(family, layout, config):
    whole, less = (dict(made(family, layout, each).state_dict()) for each in (SHAPE, config))
    assert whole.keys() == less.keys()
    assert all(torch.equal(less[name], value) for name, value in whole.items())


@pytest.mark.parametrize(("name", "layout"), TRAINED)
def test_the_output_matrix_goes_its_own_way(name, layout, tmp_path):
    model = made("plain-bert", layout, UNTIED)
    stack = model.decoder if layout == "encoder-decoder" else model
    step(model, name)
    assert not torch.equal(stack.get_output_embeddings().weight, stack.get_input_embeddings().weight)
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path).module.state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize(("name", "layout"), TRAINED)
def test_tied_it_stays_the_table_of_embeddings(name, layout):
    model = made("plain-bert", layout, SHAPE)
    stack = model.decoder if layout == "encoder-decoder" else model
    step(model, name)
    assert stack.get_output_embeddings().weight is stack.get_input_embeddings().weight


@pytest.mark.parametrize(("name", "layout"), TRAINED)
@pytest.mark.parametrize("family", ["plain-bert", "bert"])
def test_norms_stay_at_one_and_zero(family, name, layout):
    model, free = made(family, layout, PLAIN_NORMS), made(family, layout, SHAPE)
    step(model, name)
    step(free, name)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) >= 1 + 2 * SHAPE.layers
    assert all(bool((norm.weight == 1).all() and (norm.bias == 0).all()) for norm in norms)
    assert not all(bool((norm.weight == 1).all()) for norm in free.modules() if isinstance(norm, nn.LayerNorm))
