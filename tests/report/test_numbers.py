import math

import pytest
from drawn import Estimate
from hypothesis import given
from hypothesis import strategies as st

from infoflow.report._numbers import decimals, duration_text, estimate_text, listed, number, size_text


def _estimate(value, low, high):
    return Estimate(value=value, low=low, high=high, seeds=1, count=10)


@given(st.floats(-1e3, 1e3), st.floats(1e-4, 1e2))
def test_rounding_never_hides_more_than_half_of_the_interval(value, half):
    shown = float(number(value, decimals(value - half, value + half, value)).replace("−", "-").replace(",", ""))
    assert abs(shown - value) <= half / 2 + 1e-9


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e2))
def test_rounding_shows_no_digit_far_below_the_interval(value, half):
    assert 10.0 ** -decimals(value - half, value + half, value) >= half / 100


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.3274, 1.19, 1.48, "1.33 (1.19 to 1.48)"),
        (-0.0204, -0.03, -0.01, "−0.020 (−0.030 to −0.010)"),
        (0.412, math.nan, math.nan, "0.412"),
        (31.24, 29.3, 32.4, "31.2 (29.3 to 32.4)"),
        (1234.5, 1100, 1400, "1,234 (1,100 to 1,400)"),
    ],
)
def test_estimates_in_words(value, low, high, text):
    assert estimate_text(_estimate(value, low, high)) == text


def test_the_unit_stands_between_value_and_interval():
    assert estimate_text(_estimate(1.33, 1.2, 1.5), "nats") == "1.33 nats (1.20 to 1.50)"


def test_a_fall_is_told_as_a_size():
    assert size_text(_estimate(-1.33, -1.5, -1.2), "nats") == "1.33 nats (1.20 to 1.50)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "0.05"), (-0.00001, "0"), (183.04, "183"), (math.nan, "–"), (0.0, "0")]
)
def test_bare_numbers(value, text):
    assert number(value) == text


def test_zero_has_no_sign():
    assert number(-0.004, 2) == "0.00"


@pytest.mark.parametrize(("seconds", "text"), [(12.4, "12 s"), (89, "89 s"), (482, "8 min"), (4635.9, "1 h 17 min")])
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("items", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_lists(items, text):
    assert listed(items) == text
