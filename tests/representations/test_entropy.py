"""Estimates of entropy against slow formulas, and their bias on known distributions."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.representations import corrected_information, entropy, estimate_information, mutual_information


def chao_wang_jost_by_definition(counts):
    """Chao, Wang and Jost (2013), equation 5, term by term."""
    n = int(sum(counts))
    f1, f2 = sum(c == 1 for c in counts), sum(c == 2 for c in counts)
    seen = sum(c / n * sum(1 / k for k in range(c, n)) for c in counts)
    if f2 > 0:
        a = 2 * f2 / ((n - 1) * f1 + 2 * f2)
    else:
        a = 2 / ((n - 1) * (f1 - 1) + 2)
    if f1 == 0 or a == 1:
        return seen
    tail = -np.log(a) - sum((1 - a) ** r / r for r in range(1, n))
    return seen + f1 / n * (1 - a) ** (1 - n) * tail


def grassberger_by_definition(counts):
    """Grassberger (2003), with G of equation 31 by its recursion: G(1) = −γ − ln 2, G(2) = 2 − γ − ln 2, ..."""
    gains = {1: -np.euler_gamma - np.log(2)}
    for n in range(1, max(counts) + 1):
        gains[n + 1] = gains[n] + (2 / n if n % 2 == 1 else 0)
    total = sum(counts)
    return np.log(total) - sum(c * gains[c] for c in counts) / total


@given(st.lists(st.integers(1, 12), min_size=3, max_size=40).filter(lambda counts: sum(counts) > 30))
def test_chao_wang_jost_is_the_published_formula(counts):
    expected = chao_wang_jost_by_definition(counts)
    assert entropy(np.array(counts), "chao-wang-jost") == pytest.approx(expected, abs=2e-3)


def test_chao_wang_jost_is_exact_for_many_observations():
    counts = np.random.default_rng(0).integers(1, 6, size=600)
    assert entropy(counts, "chao-wang-jost") == pytest.approx(chao_wang_jost_by_definition(counts.tolist()), abs=1e-7)


def chao_wang_jost_as_computed(once, twice, often):
    """With the sum over unseen labels as an integral and half its first term; in 40 digits."""
    n = once + 2 * twice + often
    share = (
        mpmath.mpf(2 * twice) / ((n - 1) * once + 2 * twice) if twice else mpmath.mpf(2) / ((n - 1) * (once - 1) + 2)
    )
    seen = (
        mpmath.psi(0, n) - (once * mpmath.psi(0, 1) + 2 * twice * mpmath.psi(0, 2) + often * mpmath.psi(0, often)) / n
    )
    x = -n * mpmath.log(1 - share)
    return seen + mpmath.mpf(once) / n * (1 - share) * (mpmath.exp(x) * mpmath.e1(x) + mpmath.mpf(1) / (2 * n))


@pytest.mark.parametrize("once", [1, 2, 40, 1000, 200_000])
@pytest.mark.parametrize("twice", [0, 1, 30, 1000, 200_000])
def test_unseen_labels_are_counted_exactly_however_many_were_seen_once(once, twice):
    """Neither overflow nor cancellation, with 1e-6 to 1e6 labels seen twice for each one seen once."""
    if (once, twice) == (1, 0):
        return  # A = 1: there is no tail
    counts = np.concatenate([np.ones(once, dtype=np.int64), np.full(twice, 2), [7]])
    with mpmath.workdps(40):
        expected = float(chao_wang_jost_as_computed(once, twice, 7))
    assert entropy(counts, "chao-wang-jost") == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_grassberger_is_the_published_formula(counts):
    assert entropy(np.array(counts), "grassberger") == pytest.approx(grassberger_by_definition(counts), abs=1e-9)


@pytest.mark.parametrize("estimator", ["plug-in", "miller-madow", "grassberger", "chao-shen", "chao-wang-jost"])
def test_all_converge_to_the_entropy(estimator):
    shares = 1 / np.arange(1, 51)
    shares /= shares.sum()
    counts = np.random.default_rng(0).multinomial(400_000, shares)
    assert entropy(counts, estimator) == pytest.approx(-(shares * np.log(shares)).sum(), abs=0.003)


def test_unseen_labels_are_told_from_those_seen_once_and_twice():
    """1,000 labels of Zipf's law, 500 draws: the plug-in estimate lacks .6 nats."""
    shares = 1 / np.arange(1, 1001)
    shares /= shares.sum()
    truth = -(shares * np.log(shares)).sum()
    rng = np.random.default_rng(0)
    draws = [rng.multinomial(500, shares) for _ in range(40)]
    bias = {e: np.mean([entropy(d, e) for d in draws]) - truth for e in ("plug-in", "miller-madow", "chao-wang-jost")}
    assert bias["plug-in"] < -0.5
    assert abs(bias["chao-wang-jost"]) < abs(bias["miller-madow"]) / 2
    assert abs(bias["chao-wang-jost"]) < 0.12


def test_no_counts_have_no_entropy():
    assert np.isnan(entropy(np.zeros(3, dtype=np.int64), "chao-wang-jost"))


def correlated(num, kinds=30, seed=0):
    """Labels b that say something of a, and the information of their joint distribution."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(kinds * kinds, 0.1)).reshape(kinds, kinds)
    cells = rng.choice(kinds * kinds, num, p=table.ravel())
    outer = table.sum(1, keepdims=True) * table.sum(0)
    truth = (table * np.log(np.maximum(table, 1e-300) / outer)).sum()
    return *np.divmod(cells, kinds), rng.integers(0, 64, num), truth


def information(a, b):
    return mutual_information(a, b, estimator="chao-wang-jost")


def test_the_estimate_is_twice_the_whole_less_the_mean_of_its_halves():
    a, b, blocks, _ = correlated(3000)
    first = blocks < 32
    halves = (information(a[first], b[first]) + information(a[~first], b[~first])) / 2
    found = estimate_information(a, b, blocks)
    assert found.value == pytest.approx(2 * information(a, b) - halves, abs=1e-9)
    assert found.value == pytest.approx(corrected_information(a, b, blocks), abs=1e-12)
    assert found.plug_in == pytest.approx(mutual_information(a, b), abs=1e-9)
    for block in range(64):
        rest = blocks != block
        expected = corrected_information(a[rest], b[rest], blocks[rest])
        assert found.without_block[block] == pytest.approx(expected, abs=1e-9)


def test_sizes_are_means_over_parts_of_the_blocks():
    a, b, blocks, _ = correlated(3000)
    found = estimate_information(a, b, blocks)
    quarters = [blocks // 16 == part for part in range(4)]
    assert found.sizes[-3] == pytest.approx(np.mean([quarter.sum() for quarter in quarters]))
    plug_in = np.mean([mutual_information(a[quarter], b[quarter]) for quarter in quarters])
    assert found.plug_in_by_size[-3] == pytest.approx(plug_in, abs=1e-9)
    value = np.mean([corrected_by_halves(a[q], b[q], blocks[q]) for q in quarters])
    assert found.by_size[-3] == pytest.approx(value, abs=1e-9)


def corrected_by_halves(a, b, blocks):
    first = blocks % 16 < 8
    return 2 * information(a, b) - (information(a[first], b[first]) + information(a[~first], b[~first])) / 2


@pytest.mark.parametrize("num", [1500, 6000])
def test_the_bias_of_few_tokens_is_gone(num):
    truth = correlated(1)[3]
    rng = np.random.default_rng(1)
    a, b, _, _ = correlated(200_000)
    draws = [(a[rows], b[rows], rng.integers(0, 64, num)) for rows in (rng.choice(200_000, num) for _ in range(25))]
    corrected = np.mean([estimate_information(*draw).value for draw in draws]) - truth
    plug_in = np.mean([mutual_information(*draw[:2]) for draw in draws]) - truth
    assert plug_in > 0.02
    assert abs(corrected) < plug_in / 6


def test_independent_labels_tell_nothing():
    rng = np.random.default_rng(0)
    draws = [estimate_information(*rng.integers(0, 20, (2, 4000)), rng.integers(0, 64, 4000)) for _ in range(20)]
    assert np.mean([draw.value for draw in draws]) == pytest.approx(0, abs=0.003)
    assert np.mean([draw.plug_in for draw in draws]) > 0.04


def test_sentences_in_few_blocks_still_give_a_number():
    a, b, _, _ = correlated(400)
    found = estimate_information(a, b, np.full(400, 5))
    assert found.value == pytest.approx(information(a, b))
    assert np.isfinite(found.value)
