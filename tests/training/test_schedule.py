"""The learning rate against the formula written out, and its landmarks."""

import math

import pytest

from infoflow.foundation import UserError
from infoflow.training import TrainConfig, learning_rate


def rates(**settings) -> list[float]:
    config = TrainConfig(updates=20, learning_rate=1.0, **{"warmup": 5, **settings})
    return [learning_rate(n, config) for n in range(1, 23)]


def test_linear_counts_from_one_and_ends_at_the_end_value() -> None:
    expected = [n / 5 for n in range(1, 6)] + [0.1 + 0.9 * (1 - (n - 5) / 15) for n in range(6, 21)] + [0.1, 0.1]
    assert rates(end_learning_rate=0.1) == pytest.approx(expected)


def test_polynomial_power() -> None:
    assert rates(schedule="polynomial", power=2.0)[9] == pytest.approx((1 - 5 / 15) ** 2)


def test_fairseq_uses_the_first_rate_twice_and_never_the_end_value() -> None:
    ours, theirs = rates(), rates(count_from="fairseq")
    assert theirs[0] == theirs[1] == ours[0]
    assert theirs[1:20] == ours[:19]
    assert theirs[19] > 0 == ours[19]


def test_inverse_sqrt_and_constant() -> None:
    assert rates(schedule="inverse_sqrt")[19] == pytest.approx(math.sqrt(5 / 20))
    assert rates(schedule="inverse_sqrt", warmup=0)[3] == pytest.approx(math.sqrt(1 / 4))
    assert set(rates(schedule="constant")[4:]) == {1.0}


def test_warmup_below_one_is_a_share() -> None:
    assert rates(warmup=0.25) == rates(warmup=5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"updates": 0}, "training.updates must be a whole number from 1 to 1,000,000,000. Got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"warmup": -1.0}, "warmup must be"),
        ({"label_smoothing": 1.0}, "label_smoothing must be a number at least 0, below 1"),
    ],
)
def test_impossible_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainConfig(**setting)
