"""Spans of whole words and the span-boundary objective, against the released code's rules, written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import (
    MASK,
    ORDINARY,
    VOCABULARY,
    check_pure,
    corrupted,
    distinct,
    framed,
    mixed,
    same_distribution,
    vocabulary,
    words,
)
from scipy.stats import chisquare

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, SpanBert

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)


def chances(p: float) -> list[float]:
    weights = [p * (1 - p) ** (k - 1) for k in range(1, 11)]
    return [weight / sum(weights) for weight in weights]


def masked_spans(tokens: np.ndarray, rate: float, p: float, generator: np.random.Generator) -> tuple[int, ...]:
    """`PairWithSpanMaskingScheme.mask` of facebookresearch/SpanBERT, over the words of one text."""
    groups, budget = words(tokens), math.ceil(rate * len(tokens))
    places = [place for group in groups for place in group]
    masked: set[int] = set()
    while len(masked) < min(budget, len(places)):
        span_length = int(generator.choice(range(1, 11), p=chances(p)))
        anchor = places[int(generator.integers(len(places)))]
        if anchor in masked:
            continue
        first = next(number for number, group in enumerate(groups) if anchor in group)
        for group in groups[first : first + span_length]:
            for place in group:
                if len(masked) < budget:
                    masked.add(place)
    return tuple(sorted(masked))


def runs(selected: np.ndarray) -> list[list[int]]:
    found: list[list[int]] = []
    for place in np.flatnonzero(selected).tolist():
        if found and found[-1][-1] == place - 1:
            found[-1].append(place)
        else:
            found.append([place])
    return found


@pytest.mark.parametrize(("p", "mean"), [(0.2, 3.80), (0.3, 3.04)])
def test_the_mean_span_is_that_of_the_paper(p, mean) -> None:
    assert sum(k * chance for k, chance in enumerate(chances(p), start=1)) == pytest.approx(mean, abs=0.005)
    objective = SpanBert(rate=0.001, geometric_p=p)
    assert {int(one.selected.sum()) for one in corrupted(objective, distinct(50), 50)} == {1}  # the budget cuts


@pytest.mark.parametrize("tokens", [distinct(12), framed(10, 60, 61, 11, 62, 12, 13, 63, 14)], ids=["words", "pieces"])
def test_spans_are_distributed_as_in_the_released_code(tokens) -> None:
    objective = SpanBert(rate=0.3)
    same_distribution(
        objective,
        tokens,
        lambda generator: masked_spans(tokens, 0.3, 0.2, generator),
        lambda one: tuple(np.flatnonzero(one.selected).tolist()),
        times=2000,
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 10**6), st.booleans())
def test_budget_labels_and_neighbours(length, seed, together) -> None:
    tokens = mixed(length, seed)
    result = check_pure(SpanBert(together=together), Example(texts=(tokens,)), seed)
    assert result.selected.sum() == min(math.ceil(0.15 * len(tokens)), length)
    assert np.array_equal(result.labels, np.where(result.selected, tokens, -100))
    assert np.array_equal(result.input_ids[~result.selected], tokens[~result.selected])
    for run in runs(result.selected):
        for number, place in enumerate(run):
            # [CLS] and [SEP] are neighbours like any other, so that no span touches the edge of a sequence.
            assert result["left"][place] == run[0] - 1
            assert result["right"][place] == run[-1] + 1
            assert result["place"][place] == (number if number < 20 else -100)
    assert (result["place"][~result.selected] == -100).all()


def test_a_span_beyond_twenty_tokens_asks_for_the_first_twenty() -> None:
    (result,) = corrupted(SpanBert(rate=1.0), distinct(40), 1)
    run = max(runs(result.selected), key=len)
    assert len(run) > 20
    assert [int(result["place"][place]) for place in run] == [*range(20), *[-100] * (len(run) - 20)]


def test_a_span_at_the_edge_of_a_sequence_has_no_boundary() -> None:
    bare = np.arange(10, 14)  # no [CLS], no [SEP]
    result = SpanBert(rate=1.0).corrupt(Example(texts=(bare,)), stream("edge"), VOCABULARY)
    assert result.selected.all()
    assert (result["place"] == -100).all()


@pytest.mark.parametrize("together", [True, False])
def test_fates_are_of_spans_or_of_tokens(together) -> None:
    tokens, kinds = framed(*[10] * 40), {"mask": 0, "kept": 0, "random": 0, "several": 0}
    for one in corrupted(SpanBert(together=together), tokens, 1500):
        run = runs(one.selected)[0]
        shown = one.input_ids[run]
        if len(run) == 1:
            kinds["mask" if shown[0] == MASK else "kept" if shown[0] == 10 else "random"] += 1
        elif 0 < (shown == MASK).sum() < len(run):
            kinds["several"] += 1
    ones = np.array([kinds[name] for name in ("mask", "kept", "random")])
    # A random token is 10 itself in 11 of sum(6..90) draws.
    same = 0.1 * 11 / sum(range(6, 91))
    assert chisquare(ones, ones.sum() * np.array([0.8, 0.1 + same, 0.1 - same])).pvalue > 1e-3
    assert (kinds["several"] == 0) == together


def test_random_tokens_are_as_frequent_as_in_the_text() -> None:
    tokens, found = framed(*[10] * 40), np.zeros(120)
    for one in corrupted(SpanBert(together=False), tokens, 4000):
        shown = one.input_ids[one.selected]
        np.add.at(found, shown[(shown != MASK) & (shown != 10)], 1)
    ids = [id for id in ORDINARY if id != 10]
    assert found.sum() == found[ids].sum()
    expected = np.array([id + 1.0 for id in ids])  # the counts of the vocabulary
    assert chisquare(found[ids], expected / expected.sum() * found.sum()).pvalue > 1e-3


def test_frequencies_are_needed_unless_random_tokens_are_uniform() -> None:
    unknown = vocabulary(counts=None)
    example = Example(texts=(distinct(40),))
    swaps = next(  # noise that asks for a random token
        number
        for number in range(100)
        if set(SpanBert().corrupt(example, stream("counts", number), VOCABULARY).input_ids) - {MASK, *distinct(40)}
    )
    with pytest.raises(UserError, match="frequency in the training text"):
        SpanBert().corrupt(example, stream("counts", swaps), unknown)
    SpanBert(random_ids="ordinary").corrupt(example, stream("counts", swaps), unknown)


@torch.no_grad()
def test_both_terms_equal_an_explicit_computation_token_by_token() -> None:
    objective, model = SpanBert(rate=0.4), build("bert", "encoder-spans", SHAPE, VOCABULARY).eval()
    examples = [corrupted(objective, mixed(n, n), 1)[0] for n in (12, 5, 30, 1)]
    batch = objective.collate(examples, VOCABULARY)
    found = objective.loss(model, batch, batch.noise)
    embeddings = model.encoder.bert.embeddings.word_embeddings.weight
    masked, boundary, num_masked, num_boundary = 0.0, 0.0, 0, 0
    for one in examples:
        ids = torch.tensor(one.input_ids[None])
        states = model.encoder.bert(input_ids=ids).last_hidden_state[0]
        logits = model.encoder(input_ids=ids).logits[0].double()
        for run in runs(one.selected):
            for number, place in enumerate(run):
                label = int(one.labels[place])
                masked -= float(logits[place].log_softmax(-1)[label])
                num_masked += 1
                if number >= 20:
                    continue
                seen = torch.cat([states[run[0] - 1], states[run[-1] + 1], model.places.weight[number]])
                for layer in model.boundary:
                    seen = layer(seen)
                scores = embeddings @ seen + model.boundary_bias
                boundary -= float(scores.double().log_softmax(-1)[label])
                num_boundary += 1
    assert objective.counts(batch) == {"masked-lm": num_masked, "span-boundary": num_boundary}
    assert {name: term.count for name, term in found.items()} == objective.counts(batch)
    assert float(found["masked-lm"].total) == pytest.approx(masked, rel=1e-5)
    assert float(found["span-boundary"].total) == pytest.approx(boundary, rel=1e-5)


def test_the_boundary_s_blocks_are_linear_gelu_and_norm_twice() -> None:
    model = build("bert", "encoder-spans", SHAPE, VOCABULARY)
    kinds = [type(layer).__name__ for layer in model.boundary]
    assert kinds == ["Linear", "GELU", "LayerNorm"] * 2
    assert tuple(model.places.weight.shape) == (20, 200)
    assert model.boundary[0].in_features == 2 * 16 + 200


def test_the_boundary_s_loss_reaches_the_encoder_the_places_and_the_embeddings() -> None:
    objective, model = SpanBert(), build("bert", "encoder-spans", SHAPE, VOCABULARY)
    batch = objective.collate(corrupted(objective, mixed(30), 3), VOCABULARY)
    objective.loss(model, batch, batch.noise)["span-boundary"].total.backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert {"boundary_bias", "places.weight", "boundary.0.weight"} <= reached
    assert "encoder.bert.encoder.layer.0.attention.self.query.weight" in reached
    assert not any(name.startswith("encoder.cls.predictions.transform") for name in reached)
