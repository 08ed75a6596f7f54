"""The explicit alignment against its formula, and what a run promises."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from infoflow.alignment import (
    AlignedEncoder,
    ExplicitConfig,
    IdentityLinks,
    LinkedSentences,
    ShuffledLinks,
    align_explicit,
    encoder_of,
    initial_encoder,
    word_vectors,
)
from infoflow.foundation import UserError, stream
from infoflow.models import load_model

FAST = ExplicitConfig(learning_rate=2e-3, batch_sentences=4, epochs=2)


def weights(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def loss_by_words(aligned, initial, target, config, batch):
    """The formula, vector by vector."""
    mapped = aligned(batch.source.input_ids, batch.source.real)
    with torch.no_grad():
        before = initial(batch.source.input_ids, batch.source.real)
        reached = target(input_ids=batch.target.input_ids, attention_mask=batch.target.real.long()).last_hidden_state

    def last(words, sentence, word):
        return max(token for token, of in enumerate(words[sentence].tolist()) if of == word)

    to_target = [
        (mapped[i, last(batch.source.words, i, p)] - reached[j, last(batch.target.words, j, q)]).square().mean()
        for (i, p), (j, q) in zip(batch.source_words.tolist(), batch.target_words.tolist(), strict=True)
    ]
    to_start = [
        (mapped[i, t] - before[i, t]).square().mean()
        for i, row in enumerate(batch.source.real.tolist())
        for t, real in enumerate(row)
        if real
    ]
    return config.attraction * sum(to_target) / len(to_target) + config.regulariser * sum(to_start) / len(to_start)


def trained_by_words(source, target, corpus, config):
    """One epoch of the published Adam, written out: the rate rises over sentences, not over updates."""
    initial, sentences = (
        initial_encoder(source, target, config),
        LinkedSentences(source, target, corpus, IdentityLinks()),
    )
    aligned, order = (
        copy.deepcopy(initial).requires_grad_(True),
        stream("alignment-order", 0, 0).permutation(len(corpus)),
    )
    values = list(aligned.parameters())
    means, squares = ([torch.zeros_like(value) for value in values] for _ in range(2))
    for update, start in enumerate(range(0, len(corpus), config.batch_sentences), 1):
        batch = sentences.batch(order[start : start + config.batch_sentences])
        loss = loss_by_words(aligned, initial, encoder_of(target), config, batch)
        rate = config.learning_rate * min(1, update * config.batch_sentences / (config.warmup * len(corpus)))
        gradients = torch.autograd.grad(loss, values, allow_unused=True, materialize_grads=True)
        for value, gradient, mean, square in zip(values, gradients, means, squares, strict=True):
            mean.mul_(0.9).add_(0.1 * gradient)
            square.mul_(0.98).add_(0.02 * gradient**2)
            root = (square / (1 - 0.98**update)).sqrt() + 1e-9
            value.data -= rate * mean / (1 - 0.9**update) / root
    return aligned


@pytest.fixture(scope="module")
def sober(masked):
    """The source without dropout."""
    module = copy.deepcopy(masked.module)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return dataclasses.replace(masked, module=module)


@pytest.mark.parametrize("changes", [{"batch_sentences": 8}, {"batch_sentences": 4, "attraction": 0.5}])
def test_training_is_the_formula_and_the_published_adam(sober, narrow, parallel_corpus, tmp_path, changes):
    config = ExplicitConfig(learning_rate=2e-3, regulariser=0.25, warmup=0.5, epochs=1, **changes)
    found = align_explicit(sober, narrow, parallel_corpus, tmp_path / "out", config=config)
    expected = trained_by_words(sober, narrow, parallel_corpus, config)
    batch = LinkedSentences(sober, narrow, parallel_corpus, IdentityLinks()).batch(np.arange(40)).source
    with torch.no_grad():
        states = [
            f(batch.input_ids, batch.real)[batch.real]
            for f in (found, expected, initial_encoder(sober, narrow, config))
        ]
    torch.testing.assert_close(states[0], states[1], atol=2e-3, rtol=2e-3)
    assert (states[0] - states[2]).abs().mean() > 0.02


def test_the_regulariser_begins_at_zero(sober, narrow, parallel_corpus, tmp_path):
    """f_0 is the whole initial f, its random map too: alone it holds every weight where it is."""
    config = dataclasses.replace(FAST, attraction=0.0)
    found = align_explicit(sober, narrow, parallel_corpus, tmp_path / "out", config=config)
    assert same(weights(found), weights(initial_encoder(sober, narrow, config)))


def test_the_published_settings_are_the_default():
    default = ExplicitConfig()
    assert (default.learning_rate, default.regulariser, default.batch_sentences) == (5e-5, 0.25, 8)
    assert (default.merge, default.warmup) == ("last", 0.1)


def test_it_comes_nearer_and_leaves_both_models_alone(masked, narrow, parallel_corpus, tmp_path):
    before = weights(masked.module), weights(narrow.module)
    aligned = align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST)
    assert same(weights(masked.module), before[0])
    assert same(weights(narrow.module), before[1])
    start = initial_encoder(masked, narrow, FAST)
    batch = LinkedSentences(masked, narrow, parallel_corpus, IdentityLinks()).batch(np.arange(40))
    with torch.no_grad():
        target = encoder_of(narrow)(
            input_ids=batch.target.input_ids, attention_mask=batch.target.real.long()
        ).last_hidden_state
    errors = [
        float(
            (
                word_vectors(f(batch.source.input_ids, batch.source.real), batch.source.words, batch.source_words)
                - word_vectors(target, batch.target.words, batch.target_words)
            )
            .square()
            .mean()
        )
        for f in (start, aligned)
    ]
    assert errors[1] < 0.7 * errors[0]


def test_every_part_is_trained(masked, narrow, parallel_corpus, tmp_path):
    start = weights(initial_encoder(masked, narrow, FAST))
    end = weights(align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST))
    still = [name for name in start if torch.equal(start[name], end[name])]
    assert not [name for name in still if "weight" in name], still
    assert not torch.equal(start["projection.weight"], end["projection.weight"])


def test_same_seed_same_weights(masked, narrow, parallel_corpus, tmp_path):
    torch.manual_seed(1)
    first = align_explicit(masked, narrow, parallel_corpus, tmp_path / "a", config=FAST)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    second = align_explicit(masked, narrow, parallel_corpus, tmp_path / "b", config=FAST)
    torch.manual_seed(1)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's own random numbers are untouched
    other = align_explicit(masked, narrow, parallel_corpus, tmp_path / "c", config=dataclasses.replace(FAST, seed=3))
    assert same(weights(first), weights(second))
    assert not same(weights(first), weights(other))


def test_an_interrupted_run_ends_with_the_same_weights(masked, narrow, parallel_corpus, tmp_path, monkeypatch):
    config = dataclasses.replace(FAST, save_every=3)
    whole = align_explicit(masked, narrow, parallel_corpus, tmp_path / "whole", config=config)
    plain, read = LinkedSentences.batch, []

    def dying(self, rows):
        read.append(rows)
        if len(read) == 12:
            raise KeyboardInterrupt
        return plain(self, rows)

    monkeypatch.setattr(LinkedSentences, "batch", dying)
    with pytest.raises(KeyboardInterrupt):
        align_explicit(masked, narrow, parallel_corpus, tmp_path / "cut", config=config)
    assert not (tmp_path / "cut").exists()  # nothing half-written looks like a result
    resumed = align_explicit(masked, narrow, parallel_corpus, tmp_path / "cut", config=config)
    assert len(read) == 12 + 20 - 9  # it went on behind nine updates
    assert same(weights(resumed), weights(whole))
    assert not list(tmp_path.glob("*.checkpoint.pt"))


def test_a_finished_run_is_read_back(masked, narrow, parallel_corpus, tmp_path, monkeypatch):
    aligned = align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST)
    monkeypatch.setattr(LinkedSentences, "batch", lambda self, rows: pytest.fail("trained again"))
    again = align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST)
    assert same(weights(again), weights(aligned))
    with pytest.raises(UserError, match="an alignment of other"):
        align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST, links=ShuffledLinks())


def test_the_result_is_a_plain_checkpoint_with_its_map(masked, narrow, parallel_corpus, tmp_path):
    aligned = align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST)
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    encoder = AutoModel.from_pretrained(tmp_path / "out").eval()
    tensors = load_file(tmp_path / "out" / "projection.safetensors")
    states = encoder(input_ids=ids).last_hidden_state @ tensors["weight"].mT + tensors["bias"]
    torch.testing.assert_close(states, aligned(ids, torch.ones_like(ids).bool()))
    loaded = AlignedEncoder.load(tmp_path / "out")
    assert same(weights(loaded), weights(aligned))
    assert load_model(tmp_path / "out").require_tokenizer()("the cat")["input_ids"]


def test_mistakes_are_named(matched_models, masked, narrow, parallel_corpus, tmp_path):
    with pytest.raises(UserError, match="has no encoder"):
        align_explicit(matched_models["causal-lm"], masked, parallel_corpus, tmp_path)
    with pytest.raises(UserError, match="no aligned encoder"):
        AlignedEncoder.load(tmp_path)
    for settings, message in (
        ({"batch_sentences": 0}, "batch_sentences must be a whole number from 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"regulariser": -1.0}, r"regulariser must be a number from 0 to 1e\+06\. Got -1"),
        ({"regulariser": 0.0, "attraction": 0.0}, "nothing to learn"),
    ):
        with pytest.raises(UserError, match=message):
            ExplicitConfig(**settings)


def test_a_loss_that_is_not_finite_is_named(masked, narrow, parallel_corpus, tmp_path):
    broken = dataclasses.replace(masked, module=copy.deepcopy(masked.module))
    with torch.no_grad():
        broken.module.bert.embeddings.word_embeddings.weight.fill_(math.nan)
    with pytest.raises(UserError, match="not finite at update 1"):
        align_explicit(broken, narrow, parallel_corpus, tmp_path / "out", config=FAST)
