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
)
from infoflow.alignment import _explicit as explicit
from infoflow.foundation import UserError
from infoflow.models import load_model

FAST = ExplicitConfig(learning_rate=2e-3, batch_sentences=4, epochs=2)


def weights(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def run(source, target, corpus, out, config=FAST, links=None):
    sentences = LinkedSentences(source, target, corpus, links or IdentityLinks(), max_length=config.max_length)
    return explicit._Alignment(source, target, sentences, config, out, "key")


def loss_by_words(alignment, batch):
    """The formula, vector by vector, without dropout."""
    aligned = alignment.aligned.eval()
    mu, attraction = alignment.config.regulariser, alignment.config.attraction
    mapped = aligned(batch.source.input_ids, batch.source.real)
    before = alignment.initial(batch.source.input_ids, batch.source.real)
    reached = alignment.target(
        input_ids=batch.target.input_ids, attention_mask=batch.target.real.long()
    ).last_hidden_state

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
    return attraction * sum(to_target) / len(to_target) + mu * sum(to_start) / len(to_start)


@pytest.mark.parametrize("attraction", [1.0, 0.0])
def test_the_loss_is_the_formula(masked, narrow, parallel_corpus, tmp_path, attraction):
    config = dataclasses.replace(FAST, attraction=attraction, regulariser=0.25)
    alignment = run(masked, narrow, parallel_corpus, tmp_path, config)
    with torch.no_grad():
        for parameter in alignment.aligned.parameters():
            parameter += 0.05  # away from the start, where the second term is 0
    batch = alignment.sentences.batch(np.array([3, 1, 4, 15, 9]))
    expected = loss_by_words(alignment, batch)
    torch.testing.assert_close(alignment._loss(batch), expected)
    assert float(expected.detach()) > 0


def test_the_regulariser_begins_at_zero(masked, narrow, parallel_corpus, tmp_path):
    """f_0 is the whole initial f: its random map too."""
    alignment = run(masked, narrow, parallel_corpus, tmp_path, dataclasses.replace(FAST, attraction=0.0))
    alignment.aligned.eval()
    assert alignment._loss(alignment.sentences.batch(np.arange(4))).item() == 0


def test_the_rate_rises_over_sentences_not_steps(masked, narrow, parallel_corpus, tmp_path):
    """40 sentences, a tenth of them in the rise: with batches of 2 two updates, with batches of 1 four."""
    for batch, expected in ((2, [0.5, 1.0, 1.0]), (1, [0.25, 0.5, 0.75, 1.0, 1.0]), (8, [1.0, 1.0])):
        config = ExplicitConfig(learning_rate=1.0, batch_sentences=batch, epochs=5)
        alignment = run(masked, narrow, parallel_corpus, tmp_path, config)
        rates = []
        for update in range(len(expected)):
            alignment.update = update
            rates.append(alignment._learning_rate())
        assert rates == pytest.approx(expected), batch


def test_adam_is_the_published_one(masked, narrow, parallel_corpus, tmp_path):
    group = run(masked, narrow, parallel_corpus, tmp_path).optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0)
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
                explicit.word_vectors(
                    f(batch.source.input_ids, batch.source.real), batch.source.words, batch.source_words
                )
                - explicit.word_vectors(target, batch.target.words, batch.target_words)
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
    step, steps = explicit._Alignment._step, []

    def dying(self):
        steps.append(self.update)
        if len(steps) == 12:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(explicit._Alignment, "_step", dying)
    with pytest.raises(KeyboardInterrupt):
        align_explicit(masked, narrow, parallel_corpus, tmp_path / "cut", config=config)
    assert not (tmp_path / "cut").exists()  # nothing half-written looks like a result
    resumed = align_explicit(masked, narrow, parallel_corpus, tmp_path / "cut", config=config)
    assert steps[12] == 9
    assert same(weights(resumed), weights(whole))
    assert not list(tmp_path.glob("*.checkpoint.pt"))


def test_a_finished_run_is_read_back(masked, narrow, parallel_corpus, tmp_path, monkeypatch):
    aligned = align_explicit(masked, narrow, parallel_corpus, tmp_path / "out", config=FAST)
    monkeypatch.setattr(explicit._Alignment, "train", lambda self: pytest.fail("trained again"))
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
    with pytest.raises(UserError, match="without encoder"):
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
