"""How many seeds would decide an undetermined claim: against a loop over scipy's Student, and drawn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from infoflow.findings import FINDINGS, MOST_SEEDS, evaluate, seeds_to_decide
from infoflow.foundation import Interval

errors = st.floats(0.01, 10)


def _student(effect: float, seeds: int, error: float) -> Interval:
    half = stats.t.ppf(0.975, seeds - 1) * error
    return Interval(effect - half, effect + half)


def _needed(effect: float, seeds: int, error: float, sentences: float = 0.0, threshold: float = 0.0) -> int | None:
    interval = _student(effect, seeds, error)
    return seeds_to_decide(effect, interval, threshold, seeds=seeds, seed_error=error, sentence_error=sentences)


def _one_by_one(gap: float, seeds: int, error: float) -> int | None:
    """Without sentences: the first n whose Student interval leaves the threshold out."""
    for num in range(seeds, MOST_SEEDS + 1):
        if stats.t.ppf(0.975, num - 1) * error * math.sqrt(seeds / num) < gap:
            return num if num > seeds else None
    return MOST_SEEDS + 1


@given(gap=st.floats(0.05, 10), seeds=st.integers(2, 8), error=errors)
def test_without_sentences_it_is_the_first_student_interval_that_leaves_the_threshold_out(gap, seeds, error):
    assert _needed(gap, seeds, error) == _one_by_one(gap, seeds, error)
    assert _needed(-gap, seeds, error) == _needed(gap, seeds, error)


@given(gap=st.floats(0.05, 10), seeds=st.integers(2, 8), error=errors, sentences=errors)
def test_sentences_only_raise_it_and_units_do_not_matter(gap, seeds, error, sentences):
    alone, both = _needed(gap, seeds, error), _needed(gap, seeds, error, sentences)
    assert (alone is None) == (both is None)  # the interval is the same
    assert (both or 0) >= (alone or 0)
    assert _needed(2 * gap, seeds, 2 * error, 2 * sentences) == both  # a power of two: the same to the bit


def test_known_cases():
    # Three seeds with mean 1 and deviation 1: t(2) = 4.303 gives 2.48. Seven: t(6) = 2.447 gives .925; six give 1.05.
    assert _needed(1.0, 3, 1 / math.sqrt(3)) == 7
    assert _needed(4.0, 3, 1 / math.sqrt(3), threshold=3.0) == 7
    assert _needed(1.0, 3, 0.1) is None  # decided
    assert _needed(1.0, 3, 0.5, sentences=5.0) == MOST_SEEDS + 1  # it is the sentences
    assert _needed(1.0, 1, math.nan) is None
    assert _needed(1.0, 3, 0.0) is None
    # A reach twice as wide, as of many layers: as if the effect were half as large.
    wide = Interval(1.0 - 2 * 2.484, 1.0 + 2 * 2.484)
    found = seeds_to_decide(1.0, wide, 0.0, seeds=3, seed_error=1 / math.sqrt(3), sentence_error=0.0)
    assert found == _one_by_one(0.5, 3, 1 / math.sqrt(3))


def test_so_many_seeds_decide_about_every_second_study():
    needed = _needed(1.0, 3, 2 / math.sqrt(3))
    assert needed is not None
    rng = np.random.default_rng(0)

    def decided(num: int) -> float:
        draws = rng.normal(1.0, 2.0, size=(4000, num))
        halves = stats.t.ppf(0.975, num - 1) * draws.std(axis=1, ddof=1) / math.sqrt(num)
        return float((np.abs(draws.mean(axis=1)) > halves).mean())

    assert 0.4 < decided(needed) < 0.65
    assert decided(3) < 0.2
    assert decided(3 * needed) > 0.9


@pytest.mark.slow
def test_a_study_tells_it_and_so_many_seeds_decide(make_study):
    """Seeds that spread leave V-3 open; twice as many as are named decide it."""
    claim = [FINDINGS["representations:V-3"]]
    few = evaluate(make_study(seeds=(0, 1, 2), noise=0.01, between=0.1).tables(), claim).iloc[0]
    assert few["verdict"] == "undetermined"
    needed = few["seeds_needed"]
    assert 3 < needed < 30
    assert few["reason"].endswith(f"with the spread of these 3 seeds, about {needed} seeds would decide it.")
    many = evaluate(make_study(seeds=tuple(range(2 * needed)), noise=0.01, between=0.1).tables(), claim).iloc[0]
    assert many["verdict"] == "holds"
    assert many["seeds_needed"] == 0
    assert "would decide" not in many["reason"]
