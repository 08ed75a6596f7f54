"""Curves that go and return: found where they are, by their own levels, and never where a curve only rises."""

import numpy as np
import pytest
from support.simulated_curves import GRADUAL, STEPS, logistic

from infoflow.foundation import UserError
from infoflow.over_training import turning

TIMES = STEPS.astype(float)


def hump(height: float) -> np.ndarray:
    """Up by 1 + height around update 64, back by height around 1,024."""
    return (1 + height) * logistic(0.4, 6)(TIMES) - height * logistic(0.4, 10)(TIMES)


def noisy(curve: np.ndarray, sigma: float, draws: int) -> list:
    generator = np.random.default_rng(0)
    return [turning(STEPS, curve + generator.normal(0, sigma, len(STEPS)), sigma) for _ in range(draws)]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_hump_without_noise(sign: int) -> None:
    found = turning(STEPS, sign * hump(1.0), 0.01)
    assert found is not None
    places = [int(np.flatnonzero(at == STEPS)[0]) for at in (found.turn.before, found.turn, found.turn.after)]
    assert places == [places[0], places[0] + 1, places[0] + 2]
    assert found.value == pytest.approx((sign * hump(1.0))[places].mean())
    # By hand: the first level is 0, the last 1, so that half of each way is here.
    top = abs(found.value)
    middle = places[1]
    up, down = hump(1.0)[: middle + 1], hump(1.0)[middle:]
    first = int(np.flatnonzero(up < top / 2)[-1])
    assert (found.out.before, found.out.after) == (STEPS[first], STEPS[first + 1])
    last = int(np.flatnonzero(down > (top + 1) / 2)[-1]) + middle
    assert (found.back.before, found.back.after) == (STEPS[last], STEPS[last + 1])
    assert found.out.before < found.out <= found.out.after < found.turn < found.back.before < found.back


@pytest.mark.parametrize("sigma", [0.03, 0.08])
@pytest.mark.parametrize("name", GRADUAL)
def test_curves_that_only_rise_do_not_return(name: str, sigma: float) -> None:
    assert sum(found is not None for found in noisy(GRADUAL[name](TIMES), sigma, 60)) <= 1
    assert noisy(0 * TIMES, sigma, 20) == [None] * 20


def test_noise_that_the_errors_do_not_tell_is_no_turn() -> None:
    generator = np.random.default_rng(1)
    for _ in range(40):
        assert turning(STEPS, 0.05 * generator.standard_normal(len(STEPS)), 0.001) is None


def test_power_and_invariance() -> None:
    assert None not in noisy(hump(1.0), 0.08, 40)
    assert sum(found is not None for found in noisy(hump(0.5), 0.08, 40)) >= 35
    one, two = turning(STEPS, hump(1.0), 0.02), turning(STEPS, 7 * hump(1.0) - 3, 0.14)
    assert one is not None
    assert two is not None
    assert (two.turn, two.value) == (one.turn, pytest.approx(7 * one.value - 3))
    assert [float(two.out), float(two.back)] == pytest.approx([float(one.out), float(one.back)])
    assert turning(STEPS, hump(0.2), 0.01) is None  # overshoots by less than a quarter of its change


def test_an_extremum_at_an_end_is_none() -> None:
    assert turning(STEPS, np.where(STEPS[-1] == TIMES, 5.0, 0.0) + 0.01 * TIMES / 5000, 0.01) is None
    assert turning(STEPS, np.where(TIMES <= 1, 5.0, 0.0), 0.01) is None


def test_too_few_points_are_told() -> None:
    with pytest.raises(UserError, match="8 steps or more"):
        turning([0, 1, 2, 4], [0, 1, 2, 1], 0.1)
