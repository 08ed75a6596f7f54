"""Whether and when a curve changed abruptly during training, and piecewise linear fits of curves."""

# N step, S segments

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit

from infoflow.foundation import UserError
from infoflow.heads import Crossing, checked_curve, is_finished, last_crossing

Verdict = Literal["abrupt", "gradual", "unresolved", "unfinished", "started before", "no change"]
LEAST_POINTS = 8  # minimum number of points after step 0
_ENDS = 3  # points averaged for a level
_CLEAR = 6  # margin in BIC
_WIDEST, _LONGEST = 3.0, 1 / 3  # limits for an abrupt change: doublings; share of the training
_NONE = Crossing(float("nan"), float("nan"), float("nan"))
# N point, G grid

_MIDDLES, _SCALES, _RATES = 60, 40, 120  # sizes of grids, which are refined later
_NARROWEST, _WIDEST_SCALE = 0.02, 6.0  # scale of a logistic, in doublings


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A change over training.

    For an unfinished change, or one that started before the first checkpoint, the crossings are bounds.
    """

    verdict: Verdict
    start: float  # level of the first three points, step 0 included
    end: float  # level of the last three
    t10: Crossing  # updates at a tenth, a half, nine tenths of the change
    t50: Crossing
    t90: Crossing
    width: float  # doublings from a tenth to nine tenths of the fitted logistic: 2 ln 9 · τ
    share: float  # updates from a tenth to nine tenths, as a share of the training
    delta_bic: float  # margin of the logistic over the best gradual curve


def phase(steps: ArrayLike, values: ArrayLike, sigma: ArrayLike) -> Phase:
    r"""When a curve over training changed, and whether abruptly.

    Its levels are means of three points at each end. No change: below three standard errors. Unfinished:
    one of the last three points is further from their mean than .1 of the change and two of its errors. Times are
    crossings of the isotonic fit over \(x = \log_2 t\). *Abrupt*: a logistic in x beats straight lines in x and t, a
    power and a relaxation by more than 6 in BIC, takes at most three doublings and a third of the training from t10 to
    t90, and ends before the last three points; *unresolved* if all that holds, but fewer than two checkpoints lie
    between t10 and t90, and the checkpoints around them are more than three doublings apart.

    In simulated curves (5,000 updates, default schedule) with errors of .03 to .08 of the change, logistics of τ = .3
    were classified as abrupt in .93 to 1 of draws, gradual curves of six kinds never (20 to 60 draws each).

    Args:
        steps: Ascending, at least eight after step 0; step 0 counts only for the first level.
        values: At each step.
        sigma: Standard error of each value.
    """
    times, curve, errors = checked_phase(steps, values, sigma)
    start, end = curve[:_ENDS].mean(), curve[-_ENDS:].mean()
    change = end - start
    error = np.sqrt((errors[:_ENDS] ** 2).sum() + (errors[-_ENDS:] ** 2).sum()) / _ENDS
    levels = {"start": float(start), "end": float(end)}
    if abs(change) < 3 * error or change == 0:
        nothing = {"t10": _NONE, "t50": _NONE, "t90": _NONE, "width": np.nan, "share": np.nan, "delta_bic": np.nan}
        return Phase(verdict="no change", **levels, **nothing)
    later = times > 0
    t, y, sigmas = times[later], curve[later], errors[later]
    risen = _isotonic(np.log2(t), (y - start) / change, sigmas)
    t10, t50, t90 = (_crossing(t, risen, level) for level in (0.1, 0.5, 0.9))
    middle, scale, bic = fit_logistic(np.log2(t), y, sigmas)
    ends = 2 ** (middle + scale * np.log(9) * np.array([-1, 1]))
    found = {
        "width": float(2 * np.log(9) * scale),
        "share": float((ends[1] - ends[0]) / t[-1]),
        "delta_bic": float(gradual_bic(t, y, sigmas) - bic),
    }
    verdict: Verdict
    if not is_finished(curve, errors):
        verdict = "unfinished"
    elif risen[0] >= 0.1:
        verdict = "started before"
    else:
        few = found["width"] <= _WIDEST and found["share"] <= _LONGEST
        at_once = found["delta_bic"] > _CLEAR and few and float(ends[1]) < t[-_ENDS]
        verdict = ("abrupt" if _resolved(t, t10, t90) else "unresolved") if at_once else "gradual"
    return Phase(verdict=verdict, **levels, t10=t10, t50=t50, t90=t90, **found)


def checked_phase(steps: ArrayLike, values: ArrayLike, sigma: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    times, curve = checked_curve(steps, values)
    errors = np.broadcast_to(np.asarray(sigma, dtype=np.float64), times.shape)
    if (times > 0).sum() < LEAST_POINTS or not (errors > 0).all() or not np.isfinite(curve).all():
        unknown = int((~np.isfinite(curve)).sum())
        raise UserError(
            f"A phase needs finite values at {LEAST_POINTS} steps or more after step 0, with errors above 0. Got "
            f"{int((times > 0).sum())} steps, {unknown} values that are not finite, errors from {errors.min():g}. Add "
            "checkpoints, or leave out those without a value."
        )
    return times, curve, errors


def _resolved(t: np.ndarray, t10: Crossing, t90: Crossing) -> bool:
    between = int(((t > t10) & (t < t90)).sum())
    return between >= 2 or bool(np.log2(t90.after / t10.before) <= _WIDEST)


def _isotonic(
    x: Float[np.ndarray, " N"], values: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    from sklearn.isotonic import IsotonicRegression  # slow to import

    return IsotonicRegression().fit_transform(x, values, sample_weight=1 / sigma**2)


def _crossing(t: np.ndarray, risen: np.ndarray, level: float) -> Crossing:
    """The crossing of the isotonic fit; before the first and after the last checkpoint it is only a bound."""
    if risen[0] >= level:
        return Crossing(float(t[0]), 0.0, float(t[0]))
    if risen[-1] < level:
        return Crossing(float(t[-1]), float(t[-1]), float("inf"))
    return last_crossing(t, risen, level)


def fit_logistic(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]
) -> tuple[float, float, float]:
    r"""Middle m, scale τ (doublings) and BIC of the best \(a' + d / (1 + e^{-(x - m) / \tau})\) over \(x = \log_2 t\).

    The search is over all middles and scales; the two levels have a closed form.
    """
    middles = np.linspace(x[0] - 1, x[-1] + 1, _MIDDLES)
    scales = np.geomspace(_NARROWEST, _WIDEST_SCALE, _SCALES)
    m, tau = (grid.ravel() for grid in np.meshgrid(middles, scales))
    coarse = _misfits(expit((x - m[:, None]) / tau[:, None]), y, sigma)

    def misfit(parameters: np.ndarray) -> float:
        middle, scale = float(parameters[0]), float(np.clip(np.exp(parameters[1]), _NARROWEST, _WIDEST_SCALE))
        return float(_misfits(expit((x[None] - middle) / scale), y, sigma)[0])

    found = (np.inf, 0.0, 1.0)
    for start in np.argsort(coarse)[:3]:
        best = minimize(
            misfit, [m[start], np.log(tau[start])], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}
        )
        found = min(
            found, (float(best.fun), float(best.x[0]), float(np.clip(np.exp(best.x[1]), _NARROWEST, _WIDEST_SCALE)))
        )
    return found[1], found[2], found[0] + 4 * float(np.log(len(x)))


def gradual_bic(t: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]) -> float:
    r"""The lowest BIC of four gradual curves: linear in log t, linear in t, \(t^{-\beta}\), \(e^{-t/t_0}\)."""
    straight = _misfits(np.stack([np.log2(t), t / t[-1]]), y, sigma).min()
    power = _best(lambda rate: t[None] ** -rate[:, None], np.geomspace(0.01, 5, _RATES), y, sigma)
    times = np.geomspace(t[0] / 10, 10 * t[-1], _RATES)
    relaxation = _best(lambda time: np.exp(-t[None] / time[:, None]), times, y, sigma)
    logs = np.log(len(t))
    return float(min(straight + 2 * logs, power + 3 * logs, relaxation + 3 * logs))


def _best(
    curves: Callable[[np.ndarray], Float[np.ndarray, "G N"]], grid: np.ndarray, y: np.ndarray, sigma: np.ndarray
) -> float:
    """The lowest misfit over one parameter, near the best value of a logarithmic grid."""
    coarse = _misfits(curves(grid), y, sigma)
    at = int(np.argmin(coarse))
    low, high = np.log(grid[max(at - 1, 0)]), np.log(grid[min(at + 1, len(grid) - 1)])
    fine = minimize_scalar(
        lambda log: float(_misfits(curves(np.exp(np.atleast_1d(log))), y, sigma)[0]),
        bounds=(low, high),
        method="bounded",
    )
    return min(float(coarse[at]), float(fine.fun))


def _misfits(
    curves: Float[np.ndarray, "G N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " G"]:
    """Sum of squared residuals, in units of sigma, of `a + b · curve`, with the best a and b for each curve."""
    weights = 1 / sigma**2
    weights = weights / weights.sum()
    f = curves - (curves * weights).sum(axis=-1, keepdims=True)
    r = y - (y * weights).sum()
    spread = (weights * f**2).sum(axis=-1)
    common = (weights * f * r).sum(axis=-1)
    explained = np.divide(common**2, spread, out=np.zeros_like(spread), where=spread > 1e-18)
    return np.maximum((weights * r**2).sum() - explained, 0.0) * (1 / sigma**2).sum()


# Piecewise linear fits of a curve over training: its phases, which are shown as bands and are no finding by themselves.

_MOST = 4  # phases
_LEAST = 2  # minimum number of points per phase


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoints:
    """The best piecewise linear fit."""

    steps: tuple[float, ...]  # the first update of each phase except the first
    cost: float  # sum of squared residuals in standard errors


def change_points(
    steps: ArrayLike, values: ArrayLike, sigma: ArrayLike, most: int = _MOST, penalty: float | None = None
) -> ChangePoints:
    r"""A piecewise linear fit over \(x = \log_2 t\), with the number of lines chosen by BIC.

    $$ \min_{S \le 4} \; \min_{cuts} \sum_{s \le S} \sum_{i \in s} \Big(\frac{y_i - a_s - b_s x_i}{σ_i}\Big)^2
       + 3 S \ln N $$

    (the penalty counts a line and a cut for each phase), over all cuts that leave each phase two points. Lines are
    fitted without weights, as in common change-point packages; residuals are in standard errors.

    Args:
        steps: Ascending; step 0 is left out.
        values: At each step.
        sigma: Standard error of each value.
        most: Maximum number of phases, 1 to 4.
        penalty: Penalty for each phase instead of 3 ln N.
    """
    times, curve, errors = checked_phase(steps, values, sigma)
    if not 1 <= most <= _MOST:
        raise UserError(f"most must lie in 1..{_MOST} phases. Got {most}.")
    later = times > 0
    t, costs = times[later], _line_costs(np.log2(times[later]), curve[later], errors[later])
    each = 3 * np.log(len(t)) if penalty is None else penalty
    every = [(total + each * number, total, cuts) for number, (total, cuts) in enumerate(_best_cuts(costs, most), 1)]
    _, total, cuts = min(every)
    return ChangePoints(steps=tuple(float(t[cut]) for cut in cuts), cost=total)


def _line_costs(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]
) -> Float[np.ndarray, "N end"]:
    """The cost of one line through points start..end-1; infinite for fewer than two points."""
    costs = np.full((len(x), len(x) + 1), np.inf)
    for start in range(len(x)):
        for end in range(start + _LEAST, len(x) + 1):
            at, of = x[start:end] - x[start:end].mean(), y[start:end] - y[start:end].mean()
            slope = (at @ of) / (at @ at)
            costs[start, end] = (((of - slope * at) / sigma[start:end]) ** 2).sum()
    return costs


def _best_cuts(costs: Float[np.ndarray, "N end"], most: int) -> list[tuple[float, tuple[int, ...]]]:
    """The lowest cost of 1, 2, ... pieces, and their cuts, by dynamic programming."""
    num = len(costs)
    reached: dict[int, tuple[float, tuple[int, ...]]] = {
        end: (float(costs[0, end]), ()) for end in range(_LEAST, num + 1)
    }
    found = [reached[num]]
    for _ in range(1, most):
        reached = {
            end: min(
                (total + float(costs[cut, end]), (*cuts, cut)) for cut, (total, cuts) in reached.items() if cut < end
            )
            for end in range(_LEAST + min(reached), num + 1)
        }
        if num not in reached:
            break
        found.append(reached[num])
    return found
