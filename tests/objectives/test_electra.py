"""Replaced-token detection: draws, samples, both losses and where gradients go."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import MASK, VOCABULARY, check_pure, corrupted, framed, mixed, same_distribution
from scipy.stats import chisquare
from transformers import BertModel

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import stream
from infoflow.objectives import Electra, Example, Noise

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=140, attention_dropout=0.0)


def model(seed: int = 0):
    return build("bert", "generator-discriminator", SHAPE, VOCABULARY, seed=seed).eval()


def batch_of(objective: Electra, lengths: tuple[int, ...], first: int = 0):
    """A batch whose examples draw noise of their own, and its examples."""
    numbers = range(first, first + len(lengths))
    examples = [
        objective.corrupt(Example(texts=(mixed(n, number),)), stream("electra", number), VOCABULARY)
        for number, n in zip(numbers, lengths, strict=True)
    ]
    return objective.collate(examples, VOCABULARY, noise=Noise(tuple(("zoo", n) for n in numbers))), examples


def num_draws(length: int, longest: int = 128) -> int:
    return max(1, min(int((0.15 + 0.005) * longest), round(0.15 * length)))


def test_nineteen_draws_at_128_tokens_give_17_7_positions() -> None:
    tokens = framed(*[10] * 126)
    results = corrupted(Electra(), tokens, 3000)
    assert {int(one["times"].sum()) for one in results} == {19}
    distinct = np.array([(one["times"] > 0).sum() for one in results])
    expected = 126 * (1 - (1 - 1 / 126) ** 19)
    assert expected == pytest.approx(17.69, abs=0.015)
    assert expected / 128 == pytest.approx(0.138, abs=0.0005)
    assert distinct.mean() == pytest.approx(expected, abs=4 * distinct.std() / 3000**0.5)
    drawn = sum(one["times"] for one in results)
    assert drawn[[0, -1]].sum() == 0
    assert chisquare(drawn[1:-1]).pvalue > 1e-3


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 130), st.integers(0, 10**6))
def test_labels_are_clean_tokens_at_the_drawn_positions(length, seed) -> None:
    tokens = mixed(length, seed)
    result = check_pure(Electra(), Example(texts=(tokens,)), seed)
    assert result["times"].sum() == (num_draws(len(tokens)) if length else 0)
    assert np.array_equal(result.selected, result["times"] > 0)
    assert np.array_equal(result.labels, np.where(result.selected, tokens, -100))
    assert np.array_equal(result["clean"], tokens)
    assert set(result.input_ids[result.input_ids != tokens]) <= {MASK}  # no random tokens
    assert result.selected[result.input_ids == MASK].all()
    assert not result.selected[[0, -1]].any()


def test_eighty_five_percent_of_draws_become_masks() -> None:
    """Against an explicit loop: a position is hidden when one of its draws hides it."""
    tokens = framed(*range(10, 30))

    def explicit(generator: np.random.Generator) -> tuple:
        hidden, times = set(), np.zeros(20, dtype=int)
        for _ in range(num_draws(22)):
            place = int(generator.integers(20))
            times[place] += 1
            if generator.random() < 0.85:
                hidden.add(place)
        return tuple(sorted(times[times > 0])), len(hidden)

    def outcome(one) -> tuple:
        return tuple(sorted(one["times"][one.selected].tolist())), int((one.input_ids == MASK).sum())

    same_distribution(Electra(), tokens, explicit, outcome)


@torch.no_grad()
@pytest.mark.parametrize("selected_only", [False, True])
def test_both_terms_equal_an_explicit_computation_token_by_token(selected_only) -> None:
    objective, joint = Electra(selected_only=selected_only), model()
    batch, examples = batch_of(objective, (30, 9, 4, 60))
    found = objective.loss(joint, batch, batch.noise)
    generated, detected, draws, asked = 0.0, 0.0, 0, 0
    for number, one in enumerate(examples):
        ids = torch.tensor(one.input_ids[None])
        logits = joint.generator(input_ids=ids).logits[0].detach().double()
        text = one["clean"].copy()
        uniform = stream("loss", "generator", "zoo", number).random((int(one.selected.sum()), 120)).astype(np.float32)
        for row, place in enumerate(np.flatnonzero(one.selected).tolist()):
            noise = -np.log(-np.log(np.clip(uniform[row], 1e-9, 1 - 1e-7)))
            text[place] = int((logits[place].numpy() + noise).argmax())
            generated -= float(one["times"][place] * logits[place].log_softmax(-1)[int(one["clean"][place])])
            draws += int(one["times"][place])
        scores = joint.discriminator(input_ids=torch.tensor(text[None])).logits[0].detach().double()
        for place in range(len(text)):
            if selected_only and not one.selected[place]:
                continue
            replaced = text[place] != one["clean"][place]
            p = 1 / (1 + float(torch.exp(-scores[place])))
            detected -= np.log(p if replaced else 1 - p)
            asked += 1
    assert float(found["generator"].total) == pytest.approx(generated, rel=1e-5)
    assert float(found["replaced-token"].total) == pytest.approx(detected, rel=1e-5)
    assert objective.counts(batch) == {"generator": draws, "replaced-token": asked}
    assert {name: term.count for name, term in found.items()} == objective.counts(batch)
    assert objective.weighted({"generator": 2.0, "replaced-token": 0.5}) == 2.0 + 50 * 0.5


def test_samples_are_as_probable_as_the_generator_says() -> None:
    """One text in many examples: what the discriminator reads at a position has the generator's probabilities."""
    objective, joint = Electra(), model()
    with torch.no_grad():
        for parameter in joint.generator.parameters():
            parameter.mul_(3)  # far from uniform
    (example,) = corrupted(objective, framed(10, 11, 12, 13, 14, 15, 16), 1)
    place, times = int(np.flatnonzero(example.selected)[0]), 4000
    batch = objective.collate([example] * times, VOCABULARY, noise=Noise(tuple(("sample", n) for n in range(times))))
    read = []
    joint.discriminator.register_forward_pre_hook(
        lambda _, inputs, named: read.append(named["input_ids"]), with_kwargs=True
    )
    with torch.no_grad():
        objective.loss(joint, batch, batch.noise)
        logits = joint.generator(input_ids=batch.input_ids[:1]).logits[0, place].double()
    texts = read[0]
    others = [index for index in range(len(example.input_ids)) if index not in np.flatnonzero(example.selected)]
    assert (texts[:, others] == torch.tensor(example["clean"][others])).all()
    assert not (texts[:, others] == MASK).any()
    shares = logits.softmax(-1).numpy()
    counts = np.bincount(texts[:, place].numpy(), minlength=120)
    often = shares * times >= 5
    observed, expected = [*counts[often]], [*(shares[often] * times)]
    if not often.all():
        observed, expected = [*observed, counts[~often].sum()], [*expected, shares[~often].sum() * times]
    assert chisquare(observed, expected).pvalue > 1e-3


def test_no_gradient_passes_the_samples_but_through_shared_embeddings() -> None:
    objective, joint = Electra(), model()
    batch, _ = batch_of(objective, (30, 12))
    objective.loss(joint, batch, batch.noise)["replaced-token"].total.backward()
    shared = joint.discriminator.electra.embeddings.word_embeddings.weight
    own = [p for p in joint.generator.parameters() if p is not shared]
    assert all(p.grad is None or not p.grad.any() for p in own)
    assert shared.grad is not None
    assert bool(shared.grad.any())
    joint.zero_grad(set_to_none=True)
    objective.loss(joint, batch, batch.noise)["generator"].total.backward()
    assert bool(shared.grad.any())
    assert all(p.grad is None for p in joint.discriminator.parameters() if p is not shared)
    assert all(p.grad is not None for p in joint.generator.parameters())


def test_the_answers_are_the_loss_s_own_questions() -> None:
    objective, joint = Electra(), model()
    batch, examples = batch_of(objective, (30, 12))
    with torch.no_grad():
        (answers,) = objective.answers(joint, batch, batch.noise).values()
        total = float(objective.loss(joint, batch, batch.noise)["replaced-token"].total)
    assert len(answers.scores) == sum(len(one.input_ids) for one in examples)
    losses = np.logaddexp(0, np.where(answers.truth == 1, -answers.scores, answers.scores).astype(np.float64))
    assert losses.sum() == pytest.approx(total, rel=1e-5)
    assert np.bincount(answers.example).tolist() == [32, 14]
    assert answers.kind == "AUC"


@pytest.mark.parametrize("selected_only", [False, True])
def test_the_guess_knows_frequencies_and_how_many_draws_miss(selected_only) -> None:
    objective = Electra(selected_only=selected_only)
    batch, examples = batch_of(objective, (30, 12))
    unigram = np.linspace(1, 5, 120)
    guesses = objective.guesses(batch, unigram)
    expected = sum(
        unigram[token] * times
        for one in examples
        for token, times in zip(one["clean"].tolist(), one["times"].tolist(), strict=True)
    )
    assert guesses["generator"] == pytest.approx(expected)
    drawn = [one["clean"][place] for one in examples for place in np.flatnonzero(one.selected)]
    asked = len(drawn) if selected_only else 46
    p = sum(1 - np.exp(-unigram[token]) for token in drawn) / asked  # a draw by frequency is right that often
    assert guesses["replaced-token"] == pytest.approx(asked * -(p * np.log(p) + (1 - p) * np.log(1 - p)))


def test_the_discriminator_computes_what_bert_does_with_its_weights() -> None:
    joint = model(3)
    reference = build("bert", "encoder", SHAPE, VOCABULARY, seed=3).eval()
    bert = BertModel(reference.config, add_pooling_layer=False).eval()
    assert not bert.load_state_dict(joint.discriminator.electra.state_dict(), strict=False).missing_keys
    ids = torch.tensor(mixed(40)[None])
    theirs = bert(input_ids=ids, output_hidden_states=True).hidden_states
    ours = joint.discriminator.electra(input_ids=ids, output_hidden_states=True).hidden_states
    matched = reference.bert(input_ids=ids, output_hidden_states=True).hidden_states
    for one, other, same in zip(ours, theirs, matched, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
        torch.testing.assert_close(one, same, rtol=0, atol=1e-6)  # as every other layout of the study begins
