"""The measures that draw on the token sample."""

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.flow import NO_LABEL, Occurrences, SampleFacts, TokenSample
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.representations import (
    BlockGroups,
    IdentityNeighbours,
    LayerDistance,
    ModelDistance,
    neighbour_agreement,
    pwcca,
)

VOCABULARY = 60


def make_sample(
    num=3000, width=8, num_states=3, seed=0, regime="clean", labelled=True, sentence_length=10, stack="encoder"
):
    """Tokens drawn by Zipf's law; each layer keeps less of the token's vector."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, VOCABULARY + 1)
    token = rng.choice(VOCABULARY, num, p=shares / shares.sum())
    sentence = np.arange(num) // sentence_length
    noise = rng.normal(size=(num, width)) + rng.normal(size=(sentence.max() + 1, width))[sentence] / 2
    vectors = 2 * rng.normal(size=(VOCABULARY, width))[token]
    states = np.stack([vectors + layer * noise for layer in range(num_states)]).astype(np.float32)
    nothing = np.zeros(num, dtype=np.int64)
    occurrences = Occurrences(
        sentence=sentence,
        row=sentence,
        position=np.arange(num) % sentence_length,
        token=token,
        label=np.roll(token, -1) if labelled else np.full(num, NO_LABEL),
        previous=nothing,
        next=nothing,
        word=nothing,
        draw=nothing,
        subword=nothing,
        subwords=nothing + 1,
        word_type=token,
    )
    facts = SampleFacts(
        model="model",
        stack=stack,
        regime=regime,
        task="masked-lm",
        seed=0,
        tokenizer="words",
        frequencies=np.bincount(token, minlength=VOCABULARY),
        ranks=np.arange(1, VOCABULARY + 1),
    )
    return TokenSample(occurrences, states, facts)


def bootstrap(sample, statistic, num=60):
    """The plain bootstrap: repeat the rows of each block as often as it was drawn."""
    rows_of = [np.flatnonzero(sample.blocks == block) for block in range(64)]
    values = []
    for weights in replicate_weights()[:num].astype(int):
        index = np.concatenate([np.tile(rows_of[block], times) for block, times in enumerate(weights)])
        values.append(statistic(sample.take(index)))
    return np.array(values)


def check_estimates(frame: pd.DataFrame):
    """What every row of every table promises."""
    assert (frame["low"] <= frame["value"] + 1e-12).all()
    assert (frame["value"] <= frame["high"] + 1e-12).all()
    assert frame["replicates"].map(len).eq(200).all()


def test_layer_distance_is_one_less_pwcca():
    sample = make_sample()
    for side in ("mean", "x", "y"):
        frame = LayerDistance.table.conform(LayerDistance(side=side).compute(sample))
        check_estimates(frame)
        expected = [1 - pwcca(sample.states(i), sample.states(i + 1), side=side) for i in range(2)]
        np.testing.assert_allclose(frame["value"], expected, atol=1e-6)
        assert frame["layer"].tolist() == [0, 1]
        assert frame["next_layer"].tolist() == [1, 2]
        assert frame["count"].tolist() == [3000, 3000]


def test_shuffled_rows_are_far_apart():
    frame = LayerDistance().compute(make_sample())
    assert (frame["baseline"] > 0.9).all()
    assert (frame["value"] < 0.5).all()


def test_replicates_of_distance_have_the_bootstraps_spread_and_its_pairing():
    """To first order they are the bootstrap's, on average over samples."""
    ratios, pairings = [], []
    for seed in range(5):
        sample = make_sample(num=6000, num_states=2, seed=seed)
        [row] = LayerDistance().compute(sample).to_dict("records")
        plain = bootstrap(sample, lambda s: 1 - pwcca(s.states(0), s.states(1)))
        linear = np.array(row["replicates"][: len(plain)])
        ratios.append(linear.std() / plain.std())
        pairings.append(np.corrcoef(plain, linear)[0, 1])
    assert 0.9 < np.mean(ratios) < 1.3
    assert np.mean(pairings) > 0.7


def test_replicates_of_distance_have_the_spread_of_fresh_samples():
    """20 rows for each of 24 dimensions: leaving out each block gave 1.3 times the spread of these samples."""
    rng, sample = np.random.default_rng(5), make_sample(num=480, num_states=2)
    mix, turn = rng.normal(size=(24, 24)) * np.exp(-np.arange(24) / 8)[:, None], 0.3 * rng.normal(size=(24, 24))
    values, spreads = [], []
    for _ in range(60):
        x = rng.normal(size=(480, 24)) @ mix
        y = x + x.std() * np.tanh(x @ turn / x.std()) + 0.3 * rng.normal(size=(480, 24)) @ mix
        fresh = TokenSample(sample.occurrences, np.stack([x, y]).astype(np.float32), sample.facts)
        [row] = LayerDistance().compute(fresh).to_dict("records")
        values.append(row["value"])
        spreads.append(np.std(row["replicates"]))
    assert 0.8 < np.mean(spreads) / np.std(values) < 1.2


def test_wide_states_leave_out_groups_of_blocks():
    groups = BlockGroups.of(block_of(np.arange(500)), width=400)
    assert groups.num_groups == 16
    rng = np.random.default_rng(0)
    effects = rng.normal(size=16)
    spread = [np.std(groups.replicates(np.concatenate([[5.0], 5.0 - rng.normal(size=16)]))) for _ in range(200)]
    # Of 16 equal groups: each keeps 15/16 of what it adds, less the mean, and a bootstrap has 15/16 of the variance.
    assert np.mean(np.square(spread)) == pytest.approx(16 * (15 / 16) ** 3, rel=0.1)
    assert groups.replicates(np.concatenate([[5.0], 5.0 - effects])).mean() == pytest.approx(5, abs=1)


def test_covariances_without_each_group_are_those_of_the_rest():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 64, 200)
    groups = BlockGroups.of(blocks, width=3)
    x, y = (torch.from_numpy(rng.normal(size=(200, 3)))[groups.order] for _ in range(2))
    x, y = x - x.mean(0), y - y.mean(0)
    found = groups.covariances(x, y)
    in_order = blocks[groups.order.numpy()]
    for index in range(65):
        rest = torch.from_numpy(in_order != index - 1)
        a, b = x[rest] - x[rest].mean(0), y[rest] - y[rest].mean(0)
        torch.testing.assert_close(found[index], a.T @ b)


def test_model_distance_compares_the_layers_both_have():
    first, second = make_sample(), make_sample(width=5, num_states=2, seed=0)
    frame = ModelDistance.table.conform(ModelDistance(side="x").compute(first, second))
    check_estimates(frame)
    expected = [1 - pwcca(first.states(i), second.states(i), side="x") for i in range(2)]
    np.testing.assert_allclose(frame["value"], expected, atol=1e-6)
    assert frame["layer"].tolist() == [0, 1]
    assert frame[["width_a", "width_b"]].drop_duplicates().to_numpy().tolist() == [[8, 5]]


def test_a_model_is_at_distance_zero_from_itself():
    sample = make_sample()
    np.testing.assert_allclose(ModelDistance().compute(sample, sample)["value"], 0, atol=1e-9)


@pytest.mark.parametrize("measure", [LayerDistance(), ModelDistance()])
def test_too_few_occurrences_are_warned_about(measure):
    sample = make_sample(num=70)
    with pytest.warns(UserWarning, match="70 tokens in 8 dimensions"):
        _ = measure.compute(sample) if isinstance(measure, LayerDistance) else measure.compute(sample, sample)


def test_unknown_side_is_refused_at_once():
    with pytest.raises(UserError, match="side must be"):
        LayerDistance(side="both")


@pytest.mark.parametrize("few", ["require", "cap", "normalise"])
def test_identity_neighbours_is_neighbour_agreement_with_token_ids(few):
    sample = make_sample(num=800)
    frame = IdentityNeighbours.table.conform(IdentityNeighbours(k=20, few=few).compute(sample))
    check_estimates(frame)
    expected = [neighbour_agreement(sample.states(i), sample.occurrences.token, k=20, few=few) for i in range(3)]
    np.testing.assert_allclose(frame["value"], expected, atol=1e-12)
    assert frame["value"].is_monotonic_decreasing


def test_neighbours_of_shuffled_tokens_are_at_the_baseline():
    sample = make_sample(num=2000)
    shuffled = np.random.default_rng(0).permutation(2000)
    occurrences = sample.occurrences.take(shuffled)
    noise = TokenSample(occurrences, np.stack([sample.states(2)]), sample.facts)
    [row] = IdentityNeighbours(k=10, few="cap").compute(noise).to_dict("records")
    assert row["value"] == pytest.approx(row["baseline"], abs=0.01)
    shares = np.bincount(occurrences.token) / 2000
    assert row["baseline"] == pytest.approx((shares**2).sum(), abs=0.001)


@pytest.mark.parametrize(("few", "at_most"), [("require", 1.25), ("cap", 1.4), ("normalise", 1.45)])
def test_error_bars_of_identity_are_the_spread_over_fresh_samples(few, at_most):
    """Of queries alone they would be half as wide; where rare tokens count they are a little wide (1.2 to 1.3)."""
    values, told = [], []
    for seed in range(100):
        sample = make_sample(num=400, width=3, num_states=1, seed=seed)
        noise = np.random.default_rng(seed).normal(size=(1, 400, 3)) + sample.occurrences.token[:, None] / 40
        frame = IdentityNeighbours(k=10, few=few).compute(TokenSample(sample.occurrences, noise, sample.facts))
        values.append(frame["value"][0])
        told.append(np.var(frame["replicates"][0]))
    assert 0.85 < np.sqrt(np.mean(told)) / np.std(values) < at_most


def test_identity_neighbours_without_a_frequent_token_is_an_empty_table():
    assert len(IdentityNeighbours(k=50).compute(make_sample(num=60))) == 0


@pytest.mark.parametrize("side", ["mean", "x", "y"])
def test_nearly_dependent_states_are_measured_as_by_the_function(side):
    """A direction 1e-5 of the others, which a covariance sees with 6 digits at best."""
    sample = make_sample()
    states = sample.states(0).astype(np.float64)
    states[:, -1] = states[:, 0] + 1e-5 * states[:, -1]
    noisy = sample.states(1) + 1e-2 * np.random.default_rng(0).normal(size=states.shape)
    near = TokenSample(sample.occurrences, np.stack([states, noisy]), sample.facts)
    [row] = LayerDistance(side=side).compute(near).to_dict("records")
    assert row["value"] == pytest.approx(1 - pwcca(states, noisy, side=side), abs=1e-8)
    check_estimates(pd.DataFrame([row]))


def test_a_dependent_direction_and_one_of_correlation_zero_do_not_mix():
    sample = make_sample()
    signs = np.random.default_rng(0).permutation(np.repeat([-1.0, 1.0], 1500))
    balanced = np.stack([signs, signs, np.ones(3000)], axis=1)
    states = np.stack([balanced, balanced[:, [0, 2, 2]], sample.states(0)[:, :3]])
    frame = LayerDistance().compute(TokenSample(sample.occurrences, states, sample.facts))
    assert frame["value"][0] == pytest.approx(0, abs=1e-12)
    assert frame["value"][1] == pytest.approx(1 - pwcca(states[1], states[2]), abs=1e-12)


def test_layers_that_do_not_vary_are_at_distance_one():
    sample = make_sample(num_states=2)
    states = np.stack([sample.states(0), np.ones_like(sample.states(0))])
    frame = LayerDistance().compute(TokenSample(sample.occurrences, states, sample.facts))
    assert frame["value"].tolist() == [1.0]
