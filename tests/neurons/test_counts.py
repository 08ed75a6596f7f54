"""Counters of tokens with bounded error, positions and their information, against loops."""

from collections import Counter

import numpy as np
import pytest
import torch

from infoflow.neurons import position_information
from infoflow.subjects.neurons.measures import (
    OSCILLATING,
    SHAPES,
    TokenCounts,
    other_occurrences,
    position_bin,
    shapes,
    token_detectors,
)


def streamed(types, batches, kept, groups=1, seed=0, neurons=6):
    """Counters of a stream of Zipf tokens in batches, and exact counts by group and neuron."""
    random = np.random.default_rng(seed)
    counts, exact = TokenCounts(groups, neurons, kept), [[Counter() for _ in range(neurons)] for _ in range(groups)]
    rates = random.random((types, neurons)) ** 4
    weights = 1 / np.arange(1, types + 1)
    for number in range(batches):
        tokens = random.choice(types, 50, p=weights / weights.sum())
        active = random.random((50, neurons)) < rates[tokens]
        counts.add(number % groups, torch.from_numpy(tokens), torch.from_numpy(active))
        for token, row in zip(tokens.tolist(), active, strict=True):
            for neuron in np.flatnonzero(row):
                exact[number % groups][neuron][token] += 1
    return counts, exact


@pytest.mark.parametrize(("types", "kept"), [(10, 16), (16, 16), (300, 16), (300, 4), (2, 16)])
def test_counters_are_never_too_high_and_never_too_low_by_more_than_they_say(types, kept):
    counts, exact = streamed(types, 40, kept)
    for neuron, truth in enumerate(exact[0]):
        held = dict(zip(counts.ids[0, :, neuron].tolist(), counts.counts[0, :, neuron].tolist(), strict=True))
        held.pop(-1, None)
        lost, total = int(counts.lost[0, neuron]), sum(truth.values())
        assert (kept + 1) * lost <= total - sum(held.values())
        for token, count in truth.items():
            assert held.get(token, 0) <= count <= held.get(token, 0) + lost
        assert len(held) <= kept
        if types <= kept:
            assert held == truth
            assert lost == 0


def test_groups_are_summed_by_token():
    counts, exact = streamed(40, 60, 64, groups=3)
    ids, of_groups = counts.by_group(5)
    for neuron in range(6):
        total = sum((exact[group][neuron] for group in range(3)), Counter())
        best = sorted(total.values(), reverse=True)[:5]
        found = of_groups[:, :, neuron].sum(0).tolist()
        assert found[: len(best)] == best
        for place, token in enumerate(ids[:, neuron].tolist()):
            if found[place]:
                assert of_groups[:, place, neuron].tolist() == [exact[g][neuron][token] for g in range(3)]


def test_detectors_of_bounded_counts_are_between_certain_and_possible():
    random, wrong, open_ = np.random.default_rng(3), 0, 0
    for _ in range(300):
        frequencies = random.integers(5, 60, 12)
        rates = np.where(random.random(12) < 0.25, random.choice([0.9, 0.97, 1.0]), random.choice([0, 0.01, 0.1]))
        true = random.binomial(frequencies, rates)
        lost = int(random.integers(0, 4))
        held = np.maximum(true - random.integers(0, lost + 1, 12), 0)
        active = np.array([true.sum()])
        ids = np.where(held > 0, np.arange(12), -1)

        def judged(counts, ids, lost, active=active, frequencies=frequencies):
            return token_detectors(ids[:, None], counts[:, None], np.array([lost]), active, frequencies)

        exact, bounded = judged(true, np.arange(12), 0), judged(held, ids, lost)
        assert not exact.undecided[0]
        wrong += bounded.found[0] and not exact.found[0]
        assert bounded.found[0] or bounded.undecided[0] or not exact.found[0]
        open_ += bounded.undecided[0]
    assert wrong == 0
    assert 0 < open_ < 200


def test_information_is_that_of_a_loop_and_zero_without_dependence():
    random = np.random.default_rng(0)
    tokens = random.integers(20, 90, 30)
    active = random.binomial(tokens[:, None], random.random((30, 8)))
    active[:, 6], active[:, 7] = 0, tokens
    found = position_information(active, tokens)
    for neuron in range(8):
        nats, f = 0.0, active[:, neuron].sum() / tokens.sum()
        for count, size in zip(active[:, neuron], tokens, strict=True):
            for share, whole in ((count / size, f), (1 - count / size, 1 - f)):
                nats += size / tokens.sum() * share * np.log(share / whole) if share else 0.0
        bias = 29 / (2 * tokens.sum()) if 0 < f < 1 else 0.0
        assert found[neuron] == pytest.approx(nats - bias, abs=1e-12)
    assert found[6] == found[7] == 0
    alone = position_information(random.binomial(tokens[:, None], 0.3, (30, 4000)), tokens)
    assert abs(alone.mean()) < 4 * alone.std() / np.sqrt(4000) + 2e-4  # without the correction .01


def test_shapes_of_profiles():
    tokens = np.full(12, 100)
    profiles = {
        "oscillating": [0, 0, 100, 100, 50, 0, 0, 0, 0, 0, 0, 0],
        "two-sided": [100, 100, 99, 70, 40, 2, 0, 0, 0, 0, 0, 0],
        "one-sided": [0, 0, 0, 0, 40, 60, 90, 90, 90, 90, 94, 90],
        "other position": [20, 30, 30, 60, 40, 60, 90, 90, 90, 90, 94, 90],
    }
    found = shapes(np.array(list(profiles.values())).T, tokens)
    assert [SHAPES[at] for at in found] == list(profiles)
    scarce = np.where(np.arange(12) == 2, 10, tokens)  # too few tokens to call it an extreme
    assert SHAPES[shapes(np.array([[0, 0, 10, 0] + [0] * 8]).T, scarce)[0]] != OSCILLATING


def test_bins_cover_all_positions_without_gaps():
    bins = position_bin(np.arange(5000))
    assert bins[:64].tolist() == list(range(64))
    assert set(np.diff(bins)) == {0, 1}
    sizes = np.bincount(bins)[:-1]
    assert (sizes[64:] == np.repeat(2 ** np.arange(3, 10), 8)[: len(sizes) - 64]).all()


def test_another_occurrence_is_another_place_with_the_same_token():
    random = np.random.default_rng(1)
    tokens = random.integers(0, 30, 60)
    places, others = other_occurrences(tokens, random.permutation(60))
    assert (places != others).all()
    assert (tokens[places] == tokens[others]).all()
    assert sorted(places) == sorted(others) == [i for i in range(60) if (tokens == tokens[i]).sum() > 1]
