"""Batches under a budget: every sentence once an epoch, and a function of (seed, update) whatever was asked before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.training import LengthBucketSampler, micro_batches

lengths_strategy = st.lists(st.integers(1, 40), min_size=1, max_size=80).map(np.array)


@settings(deadline=None)
@given(lengths=lengths_strategy, budget=st.integers(10, 200), cap=st.none() | st.integers(1, 9))
def test_every_epoch_visits_each_sentence_once_within_the_budget(lengths, budget, cap) -> None:
    sampler = LengthBucketSampler(lengths, seed=1, tokens=budget, sentences=cap)
    for epoch in range(2):
        batches = [sampler.rows(epoch * sampler.num_batches + n + 1) for n in range(sampler.num_batches)]
        assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
        for rows in batches:
            assert len(rows) == 1 or len(rows) * lengths[rows].max() <= budget
            assert cap is None or len(rows) <= cap


@settings(deadline=None)
@given(lengths=lengths_strategy, tokens=st.integers(5, 120))
def test_micro_batches_split_the_rows_within_the_budget(lengths, tokens) -> None:
    target = np.roll(lengths, 1)
    rows = np.arange(len(lengths))[::2]
    pieces = micro_batches(rows, lengths, target, tokens)
    assert sorted(np.concatenate(pieces)) == sorted(rows)
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * (lengths[piece].max() + target[piece].max()) <= tokens


def test_update_determines_rows_in_any_order_of_asking() -> None:
    lengths = np.random.default_rng(0).integers(3, 20, 200)
    forward = LengthBucketSampler(lengths, seed=4, tokens=100)
    expected = [forward.rows(n) for n in range(1, 120)]
    fresh = LengthBucketSampler(lengths, seed=4, tokens=100)
    for n in [118, 3, 70, 3, 1]:
        assert np.array_equal(fresh.rows(n), expected[n - 1])


def test_epochs_and_seeds_differ_and_buckets_hold_similar_lengths() -> None:
    lengths = np.random.default_rng(0).integers(3, 20, 2000)
    sampler = LengthBucketSampler(lengths, seed=0, tokens=300)
    first, second = (
        {tuple(sorted(sampler.rows(e * sampler.num_batches + n + 1))) for n in range(sampler.num_batches)}
        for e in range(2)
    )
    assert len(first & second) < len(first) / 10
    assert not np.array_equal(sampler.rows(1), LengthBucketSampler(lengths, seed=1, tokens=300).rows(1))
    assert np.mean([np.ptp(lengths[sampler.rows(n)]) for n in range(1, 50)]) < 1
    assert sampler.epoch(sampler.num_batches) == 0
    assert sampler.epoch(sampler.num_batches + 1) == 1


def test_token_budget_ends_at_the_first_update_that_reaches_it() -> None:
    lengths = np.random.default_rng(0).integers(3, 20, 300)
    sampler = LengthBucketSampler(lengths, seed=0, tokens=100)
    updates = sampler.updates_within(1000, 10_000)
    read = [lengths[sampler.rows(n)].sum() for n in range(1, updates + 1)]
    assert sum(read[:-1]) < 1000 <= sum(read)
    assert sampler.updates_within(None, 7) == 7
    assert sampler.updates_within(10**9, 5) == 5


def test_a_sentence_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    sampler = LengthBucketSampler(np.array([5, 500, 5]), seed=0, tokens=20)
    assert sorted(len(sampler.rows(n)) for n in (1, 2)) == pytest.approx([1, 2])
