"""When a change happened and whether at once: a reference curve, simulated ones, an explicit fit."""

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import curve_fit
from support.simulated_curves import ABRUPT, GRADUAL, STEPS, UPDATES, logistic

from infoflow.foundation import UserError
from infoflow.heads import Crossing
from infoflow.over_training import phase
from infoflow.training import DEFAULT_SCHEDULE, checkpoint_steps


@pytest.mark.parametrize(
    ("schedule", "warmup", "times", "brackets"),
    [
        ("log:20", 0, (114.2, 257.0, 556.1), ((102, 157), (242, 373), (373, 575))),
        (DEFAULT_SCHEDULE, 400, (109.2, 253.0, 555.4), ((89, 158), (158, 281), (500, 625))),
    ],
)
def test_a_reference_curve(schedule, warmup, times, brackets) -> None:
    steps = np.array(checkpoint_steps(schedule, UPDATES, warmup))
    found = phase(steps, logistic(0.5)(steps), 0.01)
    assert found.verdict == "abrupt"
    for crossing, time, bracket in zip((found.t10, found.t50, found.t90), times, brackets, strict=True):
        assert crossing == pytest.approx(time, abs=0.05)
        assert (crossing.before, crossing.after) == bracket
    assert found.width == pytest.approx(2 * math.log(9) * 0.5, rel=1e-4)
    assert found.start == pytest.approx(3.1e-7, rel=0.02) or schedule != "log:20"


@pytest.mark.parametrize("sigma", [0.03, 0.08])
@pytest.mark.parametrize("name", GRADUAL)
def test_gradual_curves_are_never_called_abrupt(name: str, sigma: float) -> None:
    assert "abrupt" not in verdicts(GRADUAL[name], sigma, 4)


@pytest.mark.parametrize("name", ABRUPT)
def test_steps_are_called_abrupt(name: str) -> None:
    assert verdicts(ABRUPT[name], 0.03, 12).count("abrupt") >= 11


def verdicts(curve: Callable, sigma: float, draws: int) -> list[str]:
    clean = curve(STEPS.astype(float))
    error = sigma * abs(clean[-3:].mean() - clean[:3].mean())
    generator = np.random.default_rng(0)
    return [phase(STEPS, clean + generator.normal(0, error, len(STEPS)), error).verdict for _ in range(draws)]


def test_the_fits_are_those_of_a_general_optimiser() -> None:
    generator = np.random.default_rng(3)
    t = STEPS[1:].astype(float)
    sigma = 0.02 + 0.03 * generator.random(len(STEPS))
    values = 2 - 1.5 * logistic(0.6)(STEPS) + generator.normal(0, sigma)
    x, y, s, logs = np.log2(t), values[1:], sigma[1:], math.log(len(t))

    def bic(curve: Callable, start: list[float]) -> float:
        best, _ = curve_fit(curve, t, y, p0=start, sigma=s, maxfev=100_000)
        return float((((y - curve(t, *best)) / s) ** 2).sum() + len(start) * logs)

    step = bic(lambda t, a, d, m, tau: a + d / (1 + np.exp(-(np.log2(t) - m) / tau)), [2, -1.5, 8, 0.6])
    gradual = [
        bic(lambda t, a, b: a + b * np.log2(t), [2, -0.1]),
        bic(lambda t, a, b: a + b * t, [2, -1e-4]),
        bic(lambda t, a, b, beta: a + b * t**-beta, [0, 2, 0.3]),
        bic(lambda t, a, b, time: a + b * np.exp(-t / time), [0.5, 1.5, 300]),
    ]
    assert len(x) == 24
    assert phase(STEPS, values, sigma).delta_bic == pytest.approx(min(gradual) - step, rel=1e-3)


def test_neither_direction_nor_scale_matters() -> None:
    values = logistic(0.5)(STEPS) + np.random.default_rng(1).normal(0, 0.02, len(STEPS))
    up, down = phase(STEPS, values, 0.02), phase(STEPS, 7 - 3 * values, 0.06)
    assert up.verdict == down.verdict == "abrupt"
    assert (down.t10, down.t50, down.t90) == pytest.approx((up.t10, up.t50, up.t90))
    assert down.width == pytest.approx(up.width, rel=1e-3)


def test_verdicts_without_a_time() -> None:
    flat = np.random.default_rng(0).normal(0, 0.1, len(STEPS))
    assert phase(STEPS, flat, 0.1).verdict == "no change"
    assert math.isnan(phase(STEPS, flat, 0.1).t50)
    assert phase(STEPS, np.ones(len(STEPS)), 0.1).verdict == "no change"
    unfinished = phase(STEPS, STEPS / UPDATES, 0.01)
    assert unfinished.verdict == "unfinished"
    early = phase(STEPS, np.where(STEPS > 0, 1.0, 0.0), 0.01)
    assert early.verdict == "started before"
    assert (early.t10.before, early.t10.after) == (0, 1)


def test_a_step_between_two_far_checkpoints_is_unresolved() -> None:
    steps = np.array([0, 1, 2, 4, 8, 16, 32, 600, 1200, 1400, 1600, 2000])
    found = phase(steps, np.where(steps > 100, 1.0, 0.0), 0.02)
    assert found.verdict == "unresolved"
    assert (found.t50.before, found.t50.after) == (32, 600)


def test_a_crossing_is_a_number_with_a_bracket() -> None:
    crossing = Crossing(3.0, 2.0, 4.0)
    assert crossing + 1 == 4
    again = pickle.loads(pickle.dumps(crossing))
    assert (again, again.before, again.after) == (3, 2, 4)
    assert repr(again) == "3 (2, 4]"


@pytest.mark.parametrize(
    ("steps", "values", "sigma", "message"),
    [
        (STEPS[:8], STEPS[:8] * 1.0, 0.1, "8 steps or more"),
        (STEPS, STEPS * np.nan, 0.1, "finite"),
        (STEPS, STEPS * 1.0, 0.0, "errors above 0"),
        (STEPS[::-1], STEPS * 1.0, 0.1, "ascend"),
        (STEPS, STEPS[1:] * 1.0, 0.1, "one value for each step"),
    ],
)
def test_what_is_no_curve_is_refused(steps, values, sigma, message: str) -> None:
    with pytest.raises(UserError, match=message):
        phase(steps, values, sigma)
