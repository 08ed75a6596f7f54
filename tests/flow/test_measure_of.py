"""A measure of a function, against sums over single sentences."""

import copy

import numpy as np
import pytest
import torch

import infoflow


def _norm(states):
    """How long states are."""
    return states.norm(dim=-1)


def _confidence(weights):
    return weights.amax(-1)


def test_means_are_those_of_single_sentences(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    table = infoflow.measure(model, parallel_corpus, [infoflow.measure_of(_norm, unit="length")])["_norm"]
    sums, tokens = np.zeros(3), 0
    special = set(model.tokenizer.all_special_ids)
    for sentence in parallel_corpus:
        ids = model.tokenizer(sentence.text)["input_ids"]
        with torch.no_grad():
            states = model.module(torch.tensor([ids]), output_hidden_states=True).hidden_states
        keep = [place for place, token in enumerate(ids) if token not in special]
        sums += [float(layer[0, keep].norm(dim=-1).sum()) for layer in states]
        tokens += len(keep)
    np.testing.assert_allclose(table["value"], sums / tokens, rtol=1e-4)
    assert set(table["count"]) == {tokens}
    assert (table["low"] <= table["value"]).all()


def test_of_attention_means_are_those_of_single_sentences(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    table = infoflow.measure(model, parallel_corpus, [infoflow.measure_of(_confidence, of="attention")])["_confidence"]
    module = copy.deepcopy(model.module)
    module.set_attn_implementation("eager")
    sums, tokens = np.zeros((2, 4)), 0
    special = set(model.tokenizer.all_special_ids)
    for sentence in parallel_corpus:
        ids = model.tokenizer(sentence.text)["input_ids"]
        with torch.no_grad():
            weights = module(torch.tensor([ids]), output_attentions=True).attentions
        keep = [place for place, token in enumerate(ids) if token not in special]
        sums += [[float(head[keep].amax(-1).sum()) for head in layer[0]] for layer in weights]
        tokens += len(keep)
    np.testing.assert_allclose(table.pivot(index="layer", columns="head", values="value"), sums / tokens, rtol=1e-4)


def test_sums_of_two_parts_add_up():
    whole, part, rest = (infoflow.measure_of(_norm) for _ in range(3))
    rng = np.random.default_rng(0)
    first, second = rng.uniform(1, 2, (2, 3, 1, 64))
    whole.load_state_dict({"encoder/": first + second})
    part.load_state_dict({"encoder/": first})
    rest.load_state_dict({"encoder/": second})
    part.merge(rest)
    np.testing.assert_allclose(part.result()["value"], whole.result()["value"])
    expected = (first + second)[:2, 0].sum(1) / (first + second)[2, 0].sum()
    np.testing.assert_allclose(part.result()["value"], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": lambda states: states}, "must be a valid Python identifier"),
        ({"function": _norm, "name": "two words"}, "must be a valid Python identifier"),
    ],
)
def test_what_is_no_measure_is_refused(arguments, message):
    with pytest.raises(infoflow.UserError, match=message):
        infoflow.measure_of(**arguments)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda states: states, r"Got numbers of \d+ × \d+ × 32\."),
        (lambda states: states.norm(dim=-1)[:, 1:], r"Got numbers of \d+ × \d+\."),
        (lambda states: states.norm(), r"Got numbers of no axis\."),
        (lambda states: states.norm(dim=-1) * 1j, r"Got complex numbers of \d+ × \d+\."),
        (lambda states: None, r"Got nothing\."),
        (lambda states: 1.0, r"Got a float\."),
    ],
)
def test_what_is_no_number_for_each_token_is_refused(matched_models, parallel_corpus, function, got):
    measure = infoflow.measure_of(function, name="mine")
    with pytest.raises(infoflow.UserError, match=r"real tensor of \d+ × \d+ numbers, one for each token, .* " + got):
        infoflow.measure(matched_models["causal-lm"], parallel_corpus, [measure])
