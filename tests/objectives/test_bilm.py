"""The biLM: two directions that never meet, each a causal LM, one loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import VOCABULARY, check_pure, framed, mixed

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import stream
from infoflow.objectives import BiLM, CausalLM, Example

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)


def model(seed: int = 0):
    return build("bert", "bidirectional-pair", SHAPE, VOCABULARY, seed=seed).eval()


def batch_of(*texts: np.ndarray):
    objective = BiLM()
    return objective.collate(
        [objective.corrupt(Example(texts=(text,)), stream("bilm"), VOCABULARY) for text in texts], VOCABULARY
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 40), st.integers(0, 10**6))
def test_each_position_is_asked_for_its_neighbour(length, seed) -> None:
    tokens = mixed(length, seed)
    found = check_pure(BiLM(), Example(texts=(tokens,)), seed)
    last = len(tokens) - 1
    for place in range(len(tokens)):
        assert found.input_ids[place] == tokens[place]
        assert found.labels[place] == (tokens[place + 1] if place < last else -100)
        assert found["reversed_ids"][place] == tokens[last - place]
        assert found["reversed_labels"][place] == (tokens[last - place - 1] if place < last else -100)
    assert not found.selected.any()


@torch.no_grad()
def test_the_loss_is_that_of_two_causal_models_word_by_word() -> None:
    module, texts = model(), [mixed(12, 1), mixed(3, 2), framed()]
    with torch.no_grad():  # the stacks begin alike: told apart here
        for parameter in module.backwards.bert.encoder.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = batch_of(*texts)
    found = BiLM().loss(module, batch, batch.noise)
    expected = {"forward": 0.0, "backward": 0.0}
    for text in texts:
        for name, stack, ids in (("forward", module.forwards, text), ("backward", module.backwards, text[::-1].copy())):
            logits = stack(input_ids=torch.tensor(ids[None])).logits[0].double().log_softmax(-1)
            expected[name] -= sum(float(logits[t, ids[t + 1]]) for t in range(len(ids) - 1))
    for name, total in expected.items():
        assert float(found[name].total) == pytest.approx(total, rel=1e-5)
        assert found[name].count == BiLM().counts(batch)[name] == sum(len(text) - 1 for text in texts)
    assert BiLM().weighted({"forward": 4.0, "backward": 2.0}) == 3.0


@torch.no_grad()
def test_the_forward_stack_begins_as_the_causal_lm_does_and_has_its_loss() -> None:
    module, causal = model(3), build("bert", "decoder", SHAPE, VOCABULARY, seed=3).eval()
    texts = [mixed(9, 1), mixed(20, 2)]
    batch = batch_of(*texts)
    plain = CausalLM().collate(
        [CausalLM().corrupt(Example(texts=(text,)), stream("plain"), VOCABULARY) for text in texts], VOCABULARY
    )
    found = BiLM().loss(module, batch, batch.noise)["forward"]
    assert torch.equal(found.total, CausalLM().loss(causal, plain, plain.noise)["causal-lm"].total)
    assert BiLM().exported(module) is module.forwards


@torch.no_grad()
def test_no_layer_mixes_directions() -> None:
    """Another token changes forward states from its place on, backward states up to it, and no others."""
    module, text, place = model(), mixed(10, 4), 5
    other = text.copy()
    other[place] = 10 if text[place] != 10 else 11
    one, two = torch.tensor(text[None]), torch.tensor(other[None])
    for layer in range(1, 3):
        forward, changed = (
            module.forwards.bert(ids, output_hidden_states=True).hidden_states[layer][0] for ids in (one, two)
        )
        moved = (forward != changed).any(-1).tolist()
        assert moved == [t >= place for t in range(12)]
        backward, changed = (
            module.backwards.bert(ids.flip(1), output_hidden_states=True).hidden_states[layer][0].flip(0)
            for ids in (one, two)
        )
        moved = (backward != changed).any(-1).tolist()
        assert moved == [t <= place for t in range(12)]


def test_half_of_each_gradient_reaches_what_both_share() -> None:
    module, batch = model(), batch_of(mixed(12, 1))
    shared = module.forwards.bert.embeddings.word_embeddings.weight
    gradients = {}
    for name in ("forward", "backward"):
        module.zero_grad()
        BiLM().loss(module, batch, batch.noise)[name].total.backward()
        gradients[name] = shared.grad.clone()
        silent = module.backwards if name == "forward" else module.forwards
        assert not any(p.grad is not None and p.grad.any() for p in silent.bert.encoder.parameters())
    module.zero_grad()
    terms = BiLM().loss(module, batch, batch.noise)
    sum(BiLM().term_weights[name] * term.total for name, term in terms.items()).backward()
    torch.testing.assert_close(shared.grad, (gradients["forward"] + gradients["backward"]) / 2)
