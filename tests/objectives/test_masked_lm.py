"""Masking: counts, shares and distributions against the published rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, MaskedLM, Vocabulary

VOCABULARY = Vocabulary(size=50, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))


def sentence(length: int, seed: int = 0) -> np.ndarray:
    """[CLS], `length` ordinary tokens, [SEP]."""
    return np.array([2, *stream("tokens", seed).integers(5, 50, length), 3])


def corrupted(objective: MaskedLM, tokens: np.ndarray, times: int) -> list:
    return [objective.corrupt(Example(texts=(tokens,)), stream("corruption", n), VOCABULARY) for n in range(times)]


@settings(deadline=None)
@given(
    length=st.integers(0, 60), seed=st.integers(0, 10**6), selection=st.sampled_from(["dynamic", "static", "bernoulli"])
)
def test_labels_are_the_clean_tokens_exactly_where_selected(length, seed, selection) -> None:
    tokens = sentence(length, seed)
    before = tokens.copy()
    result = MaskedLM(selection=selection).corrupt(Example(texts=(tokens,)), stream("noise", seed), VOCABULARY)
    assert np.array_equal(tokens, before)
    assert np.array_equal(result.labels != -100, result.selected)
    assert np.array_equal(result.labels[result.selected], tokens[result.selected])
    assert np.array_equal(result.input_ids[~result.selected], tokens[~result.selected])
    assert not result.selected[[0, -1]].any()
    again = MaskedLM(selection=selection).corrupt(Example(texts=(tokens,)), stream("noise", seed), VOCABULARY)
    assert np.array_equal(again.input_ids, result.input_ids)


def test_dynamic_count_is_rounded_stochastically() -> None:
    counts = np.array([c.selected.sum() for c in corrupted(MaskedLM(), sentence(9), 4000)])
    # 0.15 * 9 = 1.35: one token with probability 0.65, two with 0.35, nothing else.
    assert set(counts) == {1, 2}
    assert chisquare([(counts == 1).sum(), (counts == 2).sum()], [0.65 * 4000, 0.35 * 4000]).pvalue > 1e-3


def test_dynamic_positions_are_uniform_and_specials_are_only_chosen_in_parity_mode() -> None:
    chosen = sum(c.selected.astype(int) for c in corrupted(MaskedLM(), sentence(20), 3000))
    assert chosen[0] == chosen[-1] == 0
    assert chisquare(chosen[1:-1]).pvalue > 1e-3
    parity = [c.selected for c in corrupted(MaskedLM(specials=True), sentence(20), 3000)]
    assert chisquare(sum(s.astype(int) for s in parity)).pvalue > 1e-3
    # fairseq's count is over all 22 positions: 3.3, so 3 or 4.
    assert {int(s.sum()) for s in parity} == {3, 4}


@pytest.mark.parametrize(("selection", "low"), [("dynamic", 5), ("static", 0), ("bernoulli", 0)])
def test_eighty_ten_ten_and_where_random_tokens_come_from(selection: str, low: int) -> None:
    tokens = np.array([2, *[7] * 60, 3])
    results = corrupted(MaskedLM(selection=selection), tokens, 3000)
    shown = np.concatenate([c.input_ids[c.selected] for c in results])
    ordinary = shown[(shown != 4) & (shown != 7)]
    num_ids = 50 - low
    # A random draw hits the old token (kept) or, among all ids, [MASK] with probability 1 / num_ids each.
    hits_mask = 0.1 / num_ids if low == 0 else 0.0
    shares = np.array([0.8 + hits_mask, 0.1 + 0.1 / num_ids, 0.1 * (num_ids - 1 - (low == 0)) / num_ids])
    counts = [(shown == 4).sum(), (shown == 7).sum(), len(ordinary)]
    assert chisquare(counts, shares * len(shown)).pvalue > 1e-3
    drawn = np.bincount(ordinary, minlength=50)
    possible = [i for i in range(low, 50) if i not in (4, 7)]
    assert drawn[possible].sum() == len(ordinary)
    assert chisquare(drawn[possible]).pvalue > 1e-3


def test_static_count_follows_bert_and_ignores_the_draw() -> None:
    # round(0.15 * len) counts [CLS] and [SEP]; at least one, at most max_predictions.
    for length, expected in [(1, 1), (9, 2), (20, 3), (126, 19), (400, 20)]:
        counts = {int(c.selected.sum()) for c in corrupted(MaskedLM(selection="static"), sentence(length), 5)}
        assert counts == {expected}


def test_static_copies_repeat_and_dynamic_noise_does_not() -> None:
    static = MaskedLM(selection="static", copies=3)
    assert [static.noise_epoch(epoch) for epoch in range(5)] == [0, 1, 2, 0, 1]
    assert [MaskedLM().noise_epoch(epoch) for epoch in range(5)] == [0, 1, 2, 3, 4]


def test_bernoulli_selects_each_token_independently() -> None:
    counts = np.array([c.selected.sum() for c in corrupted(MaskedLM(selection="bernoulli"), sentence(20), 4000)])
    assert counts.mean() == pytest.approx(3.0, abs=0.1)
    assert counts.var() == pytest.approx(20 * 0.15 * 0.85, rel=0.1)


def test_a_vocabulary_without_a_mask_is_refused() -> None:
    maskless = Vocabulary(size=50, pad=0, start=2, end=3, special=(0, 1, 2, 3, 4))
    with pytest.raises(UserError, match="mask token"):
        MaskedLM().corrupt(Example(texts=(sentence(9),)), stream("noise"), maskless)
