"""Neighbours among the occurrences of one token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from infoflow.foundation import NUM_BLOCKS, UserError, replicate_weights
from infoflow.representations import position_distance, within_token_agreement
from infoflow.representations._within_tokens import PoolRules, PoolScore, TokenAspect, averaged, pool_scores


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_sorting(x, tokens, compare, k, least, metric):
    """Per token, per occurrence, by sorting all distances; None where no token is frequent enough."""
    averages = []
    for token in sorted(set(tokens.tolist())):
        rows = [i for i in range(len(x)) if tokens[i] == token]
        if len(rows) < least:
            continue
        scores = []
        for i in rows:
            others = [j for j in rows if j != i]
            if metric == "cosine":
                others.sort(key=lambda j: -float(x[i] @ x[j] / (x[i].norm() * x[j].norm())))
            else:
                others.sort(key=lambda j: float((x[i] - x[j]).norm()))
            nearest = others[: min(k, len(others))]
            scores.append(sum(compare(i, j) for j in nearest) / len(nearest))
        averages.append(sum(scores) / len(scores))
    return sum(averages) / len(averages) if averages else None


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(2, 60),
    st.integers(1, 8),
    st.sampled_from(["require", "cap", "normalise"]),
    st.sampled_from(["cosine", "euclidean"]),
)
def test_agree_with_their_definitions(seed, n, k, few, metric):
    rng = np.random.default_rng(seed)
    x, tokens = gaussian(n, 3, seed=seed) + 0.5, rng.integers(0, 3, n)
    labels, positions = rng.integers(0, 3, n), rng.integers(0, 12, n)
    least = 2 * k + 1 if few == "require" else 2
    expected = by_sorting(x, tokens, lambda i, j: labels[i] == labels[j], k, least, metric)
    if expected is None:
        with pytest.raises(UserError, match=f"No token occurs {least} times"):
            within_token_agreement(x, tokens, labels, k, few, metric)
        return
    assert within_token_agreement(x, tokens, labels, k, few, metric) == pytest.approx(expected, abs=1e-12)
    expected = by_sorting(x, tokens, lambda i, j: abs(int(positions[i] - positions[j])), k, least, metric)
    assert position_distance(x, tokens, positions, k, few, metric) == pytest.approx(expected, abs=1e-12)


def test_minimum_admits_fewer_occurrences_than_twice_k():
    x, tokens, labels = gaussian(60, 4), np.arange(60) % 3, np.arange(60) // 3 % 2
    expected = by_sorting(x, tokens, lambda i, j: labels[i] == labels[j], 15, 16, "cosine")
    assert within_token_agreement(x, tokens, labels, k=15, minimum=16) == pytest.approx(expected, abs=1e-12)


def test_no_more_occurrences_than_neighbours_is_chance():
    """Every other occurrence is a neighbour, so vectors do not matter."""
    tokens, labels = np.zeros(30, dtype=int), np.arange(30) % 4
    one, other = (within_token_agreement(gaussian(30, 4, seed=s), tokens, labels, k=50, few="cap") for s in (0, 1))
    counts = np.bincount(labels)
    assert one == other == pytest.approx((counts * (counts - 1)).sum() / (30 * 29))


def test_clear_groups_are_found_whatever_the_token():
    tokens, labels = np.arange(600) % 3, np.arange(600) // 3 % 4
    centres = 20 * gaussian(4, 8)
    x = centres[labels] + gaussian(600, 8, seed=1) + 100 * gaussian(3, 8, seed=2)[tokens]
    assert within_token_agreement(x, tokens, labels, k=20, metric="euclidean") == 1
    assert position_distance(x, tokens, labels, k=20, metric="euclidean") == 0


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_are_at_chance(metric, dtype):
    """As at layer 0 of a model without absolute positions."""
    x, tokens = gaussian(1, 5).to(dtype).repeat(150, 1), np.zeros(150, dtype=int)
    positions = np.random.default_rng(0).integers(0, 9, 150)
    pairs = np.abs(positions[:, None] - positions)[~np.eye(150, dtype=bool)]
    assert position_distance(x, tokens, positions, k=10, metric=metric) == pytest.approx(pairs.mean())
    assert position_distance(0 * x, tokens, positions, k=10, metric=metric) == pytest.approx(pairs.mean())


def test_repeated_vectors_have_each_other_as_neighbours():
    x, tokens = gaussian(20, 6).repeat_interleave(10, dim=0), np.zeros(200, dtype=int)
    group = np.arange(200) // 10
    assert within_token_agreement(x, tokens, group, k=9) == 1
    assert within_token_agreement(x, tokens, group, k=18, minimum=19) == pytest.approx(0.5)


def test_rows_without_a_label_are_neither_queries_nor_neighbours():
    rng = np.random.default_rng(0)
    x, labels = gaussian(300, 4).numpy(), rng.integers(0, 3, 300)
    holes, late = rng.random(300) < 0.3, np.arange(300) > 60  # scattered, and in one place
    aspects = {
        "all": TokenAspect(labels, "same"),
        "scattered": TokenAspect(np.where(holes, -1, labels), "same"),
        "late": TokenAspect(np.where(late, -1, labels), "same"),
        "hardly any": TokenAspect(np.where(np.arange(300) < 20, labels, -1), "same"),
    }
    rules = PoolRules.of(10, "require", "cosine", None)
    scores = pool_scores(torch.from_numpy(x), aspects, rng.integers(0, 64, 300), rules)
    assert set(scores) == {"all", "scattered", "late"}
    for name, known in (("all", labels >= 0), ("scattered", ~holes), ("late", ~late)):
        expected = within_token_agreement(x[known], np.zeros(known.sum(), dtype=int), labels[known], k=10)
        assert scores[name].value == pytest.approx(expected, abs=1e-12)
        assert scores[name].count == known.sum()


def test_blocks_of_queries_change_nothing(monkeypatch):
    x, tokens, labels = gaussian(300, 4), np.arange(300) % 2, np.arange(300) % 7
    whole = within_token_agreement(x, tokens, labels, k=10)
    monkeypatch.setattr("infoflow.representations._within_tokens._SCORES_AT_ONCE", 2000)
    assert within_token_agreement(x, tokens, labels, k=10) == whole


def draw_pool(seed, n=300, sentences=150):
    """States that keep something of the position, two occurrences in each sentence."""
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 10, n)
    x = rng.normal(size=(n, 3)) + 0.4 * positions[:, None]
    return torch.from_numpy(x), positions, rng.integers(0, 64, sentences)[np.arange(n) % sentences]


def estimates(seed, aspect, rules):
    x, positions, blocks = draw_pool(seed)
    return pool_scores(x, {"": aspect(positions)}, blocks, rules)[""]


@pytest.mark.parametrize(
    "aspect", [lambda p: TokenAspect(p, "distance"), lambda p: TokenAspect(p // 3, "same")], ids=["distance", "same"]
)
def test_error_bars_are_the_spread_over_fresh_samples(aspect):
    """With queries alone they would be too narrow: this is what counting neighbours too is for."""
    rules, weights = PoolRules.of(20, "require", "euclidean", None), replicate_weights()
    scores = [estimates(seed, aspect, rules) for seed in range(120)]
    spread = np.std([score.value for score in scores])
    told = np.sqrt(np.mean([np.var((weights - 1) @ score.effects) for score in scores]))
    assert 0.8 < told / spread < 1.25


def test_effects_are_what_leaving_a_block_out_changes():
    rules = PoolRules.of(10, "require", "euclidean", None)
    x, positions, blocks = draw_pool(0, n=1200, sentences=600)
    whole = pool_scores(x, {"": TokenAspect(positions, "distance")}, blocks, rules)[""]
    changes = []
    for block in range(64):
        rest = blocks != block
        part = pool_scores(
            x[torch.from_numpy(rest)], {"": TokenAspect(positions[rest], "distance")}, blocks[rest], rules
        )
        changes.append(whole.value - part[""].value)
    assert np.corrcoef(changes, whole.effects)[0, 1] > 0.95
    assert np.std(changes) == pytest.approx(np.std(whole.effects), rel=0.15)
    assert whole.effects.sum() == pytest.approx(0, abs=1e-12)


def one_pool(value, count):
    return PoolScore(value=value, chance=0.1, count=count, effects=np.zeros(NUM_BLOCKS))


def test_the_choice_of_tokens_that_barely_qualify_is_a_source_of_error():
    values, counts, least = [0.2, 0.5, 0.9, 0.4], [21, 25, 30, 60], 21
    mean, variance = sum(values) / 4, 0.0
    for value, count in zip(values, counts, strict=True):
        qualifies = poisson.sf(least - 1, count)
        variance += 2 * qualifies * (1 - qualifies) * (value - mean) ** 2 / 4**2
    assert averaged([one_pool(*each) for each in zip(values, counts, strict=True)], least).spread == pytest.approx(
        variance**0.5
    )


def test_tokens_with_many_occurrences_are_the_same_in_every_text():
    assert averaged([one_pool(0.2, 500), one_pool(0.8, 500)], 101).spread == pytest.approx(0, abs=1e-9)


def test_drawn_texts_spread_as_told():
    """Tokens with a value each, and Poisson numbers of occurrences: means over those that qualify."""
    rng = np.random.default_rng(0)
    least, values, expected = 21, rng.uniform(0, 1, 40), np.linspace(70, 8, 40)
    means, told = [], []
    for _ in range(400):
        counts = rng.poisson(expected)
        pools = [one_pool(v, int(c)) for v, c in zip(values, counts, strict=True) if c >= least]
        found = averaged(pools, least)
        means.append(found.value)
        told.append(found.spread)
    assert np.mean(told) == pytest.approx(np.std(means), rel=0.25)
