"""Fixed sinusoids in place of positions that are learned."""

import dataclasses
import math

import pytest
import torch
from architectures.test_taken_away import SHAPE, TRAINED, made, step
from torch import nn

from infoflow.architectures import FAMILIES
from infoflow.foundation import UserError
from infoflow.models import load_model

FIXED = dataclasses.replace(SHAPE, sinusoidal_positions=0.5)
CASES = [(name, layout) for name, family in FAMILIES.items() if family.learned_positions for layout in family.layouts]


def tables(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.named_parameters() if "position_embeddings" in name or ".wpe." in name}


@pytest.mark.parametrize(("family", "layout"), CASES)
def test_nothing_else_begins_otherwise(family, layout):
    learned, fixed = (made(family, layout, each) for each in (SHAPE, FIXED))
    places = tables(fixed)
    assert places.keys() == tables(learned).keys()
    assert bool(places) == (layout != "static")
    values = dict(fixed.named_parameters())
    for name, value in learned.named_parameters():
        assert values[name].requires_grad == (value.requires_grad and name not in places)
        assert torch.equal(values[name], value) == (name not in places), name


def test_they_are_the_published_sinusoids():
    (table,) = tables(made("plain-bert", "encoder", FIXED)).values()
    assert table.shape == (64, 16)
    for position in range(64):
        for dimension in range(16):
            angle = position / 10000 ** (2 * (dimension // 2) / 16)
            wave = math.sin(angle) if dimension % 2 == 0 else math.cos(angle)
            assert float(table[position, dimension]) == pytest.approx(0.5 * wave, abs=1e-6)


@pytest.mark.parametrize(
    ("family", "name", "layout"), [*(("plain-bert", *each) for each in TRAINED), ("gpt2", "causal-lm", "decoder")]
)
def test_a_training_leaves_them_as_they_are(family, name, layout, tmp_path):
    model, learned = made(family, layout, FIXED), made(family, layout, SHAPE)
    before, free = ({key: value.clone() for key, value in tables(each).items()} for each in (model, learned))
    step(model, name)
    step(learned, name)
    assert before
    assert all(torch.equal(value, before[key]) for key, value in tables(model).items())
    assert not any(torch.equal(value, free[key]) for key, value in tables(learned).items())
    model.save_pretrained(tmp_path)
    again = tables(load_model(tmp_path).module)
    assert all(torch.equal(again[key], value) for key, value in before.items())


@pytest.mark.parametrize("family", ["t5", "elmo"])
def test_what_has_no_table_of_positions_is_refused(family):
    FAMILIES[family].check(SHAPE)
    with pytest.raises(UserError, match=rf"and {family} has none. Got 0.5. Leave it at 0"):
        FAMILIES[family].check(FIXED)
