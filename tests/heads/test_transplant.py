"""Heads in another model: bit for bit, in every family; what they compute there; which are chosen, and which drawn."""

import copy
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM

from infoflow.foundation import UserError
from infoflow.heads import (
    HeadScore,
    all_heads,
    drawn_heads,
    head_slices,
    log_mean,
    shuffled_heads,
    specialised_heads,
    transplant,
)
from infoflow.models import load_model, model_inputs, pad_rows

_SPEC = importlib.util.spec_from_file_location("families", Path(__file__).parents[1] / "models" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
families = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(families)

ROWS = [[5, 9, 21, 7, 30, 12, 4], [6, 31, 8, 17]]
WIDTH, HEADS = 16, 4
ATTENTION = "bert.encoder.layer.{}.attention"


def bert(seed: int, width: int = WIDTH, heads: int = HEADS, layers: int = 2):
    torch.manual_seed(seed)
    shape = {"vocab_size": 40, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    config = BertConfig(**shape, intermediate_size=24, max_position_embeddings=32, initializer_range=0.3)
    model = load_model(BertForMaskedLM(config))
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.ndim == 1:  # biases begin at 0, and would hide a bias that was not copied
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def another(model, seed: int = 7):
    """The same family with other weights."""
    module = copy.deepcopy(model.module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return replace(model, module=module)


def by_loops(donor, fresh, places):
    """The same for BERT, number by number."""
    module, size = copy.deepcopy(fresh.module), WIDTH // HEADS
    with torch.no_grad():
        for (_, _, layer, head), (_, _, source_layer, source) in places.items():
            for number in range(size):
                row, given_row = head * size + number, source * size + number
                for part in ("query", "key", "value"):
                    into = module.get_submodule(f"{ATTENTION.format(layer)}.self.{part}")
                    given = donor.module.get_submodule(f"{ATTENTION.format(source_layer)}.self.{part}")
                    for column in range(WIDTH):
                        into.weight[row, column] = given.weight[given_row, column]
                    into.bias[row] = given.bias[given_row]
                into = module.get_submodule(f"{ATTENTION.format(layer)}.output.dense")
                given = donor.module.get_submodule(f"{ATTENTION.format(source_layer)}.output.dense")
                for line in range(WIDTH):
                    into.weight[line, row] = given.weight[line, given_row]
    return module


def contribution(module, layer: int, head: int, states):
    """What one head adds to the residual stream, A V W_O, from the definition."""
    attention, size = module.get_submodule(ATTENTION.format(layer)), WIDTH // HEADS
    own = slice(head * size, (head + 1) * size)
    q, k, v = (
        states @ one.weight[own].T + one.bias[own]
        for one in (attention.self.query, attention.self.key, attention.self.value)
    )
    weights = torch.softmax(q @ k.T / size**0.5, dim=-1)
    return weights @ v @ attention.output.dense.weight[:, own].T


PLACES = {
    ("encoder", "self", 0, 1): ("encoder", "self", 0, 1),
    ("encoder", "self", 1, 3): ("encoder", "self", 0, 2),
    ("encoder", "self", 1, 0): ("encoder", "self", 1, 2),
}


def test_every_number_of_a_head_and_no_other_is_copied():
    donor, fresh = bert(0), bert(1)
    before = [copy.deepcopy(one.module.state_dict()) for one in (donor, fresh)]
    found, expected = transplant(donor, fresh, PLACES).module.state_dict(), by_loops(donor, fresh, PLACES).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    changed = {name for name in found if not torch.equal(found[name], before[1][name])}
    assert changed == {
        f"{ATTENTION.format(layer)}.{part}"
        for layer in (0, 1)
        for part in (
            *(f"self.{one}.{kind}" for one in ("query", "key", "value") for kind in ("weight", "bias")),
            "output.dense.weight",
        )
    }
    for one, was in zip((donor, fresh), before, strict=True):
        assert all(torch.equal(one.module.state_dict()[name], was[name]) for name in was)


def test_a_head_adds_there_what_it_adds_in_its_own_model():
    donor, fresh = bert(0), bert(1)
    module = transplant(donor, fresh, PLACES).module
    states = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for target, source in PLACES.items():
            there, here = contribution(module, *target[2:], states), contribution(donor.module, *source[2:], states)
            torch.testing.assert_close(there, here, rtol=0, atol=1e-6)
            assert (contribution(fresh.module, *target[2:], states) - here).abs().max() > 0.01
        # the definition is the model's own: all heads and the bias together are the attention's output
        attention = module.get_submodule(ATTENTION.format(0))
        whole = attention.output.dense(attention.self(states[None])[0])[0]
        parts = sum(contribution(module, 0, head, states) for head in range(HEADS)) + attention.output.dense.bias
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)


def logits(model):
    ids, mask = pad_rows(ROWS, model.pad_token_id)
    decoder = ids.flip(1)[:, :5].clamp(min=3) if model.task == "seq2seq" else None
    with torch.no_grad():
        return model.module(**model_inputs(model, ids, mask, decoder_input_ids=decoder)).logits


@pytest.mark.parametrize("family", families.FAMILIES)
def test_all_heads_and_all_else_of_the_donor_are_the_donor(family):
    donor = load_model(families.build(family))
    fresh = another(donor)
    heads = all_heads(donor.anatomy)
    grown = transplant(donor, fresh, {head: head for head in heads})
    owned = {piece.parameter: torch.zeros(0) for piece in head_slices(donor, heads)}
    masks = {name: torch.zeros(donor.module.get_parameter(name).shape, dtype=torch.bool) for name in owned}
    for piece in head_slices(donor, heads):
        masks[piece.parameter] |= piece.mask(masks[piece.parameter])
    given, own = dict(donor.module.named_parameters()), dict(fresh.module.named_parameters())
    with torch.no_grad():
        for name, parameter in grown.module.named_parameters():
            mask = masks.get(name, torch.zeros(parameter.shape, dtype=torch.bool))
            assert torch.equal(parameter[mask], given[name][mask])
            assert torch.equal(parameter[~mask], own[name][~mask])
            parameter[~mask] = given[name][~mask]
    assert torch.equal(logits(grown), logits(donor))
    assert not torch.equal(logits(fresh), logits(donor))


def test_shuffled_heads_keep_their_numbers_and_lose_their_function():
    donor = bert(0)
    heads = [("encoder", "self", 0, 1), ("encoder", "self", 1, 3)]
    shuffled = shuffled_heads(donor, heads, seed=5)
    for piece in head_slices(donor, heads):
        before, after = (piece.take(one.module.get_parameter(piece.parameter)) for one in (donor, shuffled))
        assert torch.equal(before.flatten().sort().values, after.flatten().sort().values)
        assert not torch.equal(before, after)
    untouched = [head for head in all_heads(donor.anatomy) if head not in heads]
    for piece in head_slices(donor, untouched):
        before, after = (piece.take(one.module.get_parameter(piece.parameter)) for one in (donor, shuffled))
        assert torch.equal(before, after)
    again, other = (shuffled_heads(donor, heads[:1], seed=seed).module for seed in (5, 6))
    first = head_slices(donor, heads[:1])
    assert all(torch.equal(*(p.take(m.get_parameter(p.parameter)) for m in (again, shuffled.module))) for p in first)
    assert not any(torch.equal(*(p.take(m.get_parameter(p.parameter)) for m in (again, other))) for p in first)


@pytest.mark.parametrize(
    ("donor", "places", "message"),
    [
        (lambda: bert(0, width=32), PLACES, r"same shapes.*head 1 of encoder self-attention layer 0"),
        (lambda: bert(0, heads=2), {("encoder", "self", 0, 1): ("encoder", "self", 0, 1)}, "same shapes"),
        (lambda: bert(0), {("encoder", "self", 0, 4): ("encoder", "self", 0, 1)}, "heads 0..3. Got"),
        (lambda: bert(0), {("encoder", "self", 0, 1): ("decoder", "self", 0, 1)}, "Layers and heads count from 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_message(donor, places, message):
    with pytest.raises(UserError, match=message) as error:
        transplant(donor(), bert(1), places)
    assert str(error.value).count("Got") == 1


def test_heads_that_share_weights_come_together():
    llama = load_model(families.build("llama"))
    one, partner = ("decoder", "self", 1, 2), ("decoder", "self", 1, 3)
    with pytest.raises(UserError, match=r"Heads 2\.\.3 of decoder self-attention layer 1 .*Name the whole group"):
        transplant(llama, another(llama), {one: one})
    transplant(llama, another(llama), {one: one, partner: partner})
    with pytest.raises(UserError, match="share a key and value"):  # theirs are of two groups
        transplant(llama, another(llama), {one: one, partner: ("decoder", "self", 1, 0)})
    albert = load_model(families.build("albert"))
    with pytest.raises(UserError, match=r"share one set of weights.*Name it in every layer"):
        transplant(albert, another(albert), {("encoder", "self", 0, 1): ("encoder", "self", 0, 1)})


# -- which heads ------------------------------------------------------------------------------------------------------


def scores(*layers: str) -> list[HeadScore]:
    """A head for each letter, A the most important; small letters have a role."""
    return [
        HeadScore(
            head=("encoder", "self", layer, head),
            importance=float(ord("Z") - ord(letter.upper())),
            roles=("positional -1",) if letter.islower() else (),
        )
        for layer, letters in enumerate(layers)
        for head, letter in enumerate(letters)
    ]


def letters(found, chosen) -> str:
    names = {one.head: one for one in found}
    return "".join(chr(int(ord("Z") - names[head].importance)) for head in chosen)


@pytest.mark.parametrize(
    ("choose", "expected"), [(("importance",), "ABEF"), (("roles",), "CG"), (("roles", "importance"), "CGAE")]
)
def test_roles_come_before_importance_and_half_of_a_layer_stays(choose, expected):
    found = scores("ABcD", "EFgH")
    assert letters(found, specialised_heads(found, 4, choose)) == expected
    assert letters(found, specialised_heads(found, 1, choose)) == expected[0]


@given(st.integers(1, 5), st.integers(2, 8), st.integers(1, 20), st.integers(0, 50), st.data())
def test_drawn_heads_are_others_and_as_many_in_every_layer(layers, heads, num, draw, data):
    worth = data.draw(st.permutations(range(layers * heads)))
    found = [
        HeadScore(head=("encoder", "self", layer, head), importance=float(worth[layer * heads + head]))
        for layer in range(layers)
        for head in range(heads)
    ]
    chosen = specialised_heads(found, num, ["importance"])
    assert len(chosen) == min(num, layers * (heads // 2))
    drawn = drawn_heads([one.head for one in found], chosen, draw)
    assert not set(drawn) & set(chosen)
    assert sorted(head[2] for head in drawn) == sorted(head[2] for head in chosen)
    assert drawn == drawn_heads([one.head for one in reversed(found)], chosen, draw)


def test_draws_differ():
    found = scores("ABKLMNOP", "CDEFGHIJ")
    chosen = specialised_heads(found, 4, ["importance"])
    assert len({tuple(drawn_heads([one.head for one in found], chosen, draw)) for draw in range(8)}) > 4
    assert len({tuple(drawn_heads([one.head for one in found], chosen, 0, seed)) for seed in range(8)}) > 4


# -- the statistic ----------------------------------------------------------------------------------------------------


def test_the_mean_over_log_updates_is_the_area_by_small_steps():
    steps = [1, 4, 9, 100]
    values = np.array([[4.0, 3.0, 2.5, 1.0], [1.0, 1.0, 1.0, 1.0]])
    grid = np.linspace(0.0, np.log(100), 200_001)
    expected = [np.interp(grid, np.log(steps), row).mean() for row in values]
    np.testing.assert_allclose(log_mean(steps, values), expected, rtol=1e-4)
    assert log_mean([5], values[:, :1]).tolist() == [4.0, 1.0]
    for wrong in ([0, 4, 9, 100], [4, 1, 9, 100], [1, 4, 4, 100]):
        with pytest.raises(UserError, match="ascending numbers from 1"):
            log_mean(wrong, values)
