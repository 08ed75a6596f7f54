"""Least-squares fits of a curve over training: a step in log time against four gradual curves."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit

# N point, G grid

_MIDDLES, _SCALES, _RATES = 60, 40, 120  # sizes of grids, which are refined later
_NARROWEST, _WIDEST = 0.02, 6.0  # scale of a logistic, in doublings


@dataclass(frozen=True, kw_only=True, slots=True)
class LogisticFit:
    r"""\(a' + d / (1 + e^{-(x - m) / \tau})\) over \(x = \log_2 t\)."""

    middle: float  # m
    scale: float  # τ, doublings
    bic: float


def fit_logistic(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]) -> LogisticFit:
    """The best fit over all middles and scales; the two levels have a closed form."""
    middles = np.linspace(x[0] - 1, x[-1] + 1, _MIDDLES)
    scales = np.geomspace(_NARROWEST, _WIDEST, _SCALES)
    m, tau = (grid.ravel() for grid in np.meshgrid(middles, scales))
    coarse = _misfits(expit((x - m[:, None]) / tau[:, None]), y, sigma)

    def misfit(parameters: np.ndarray) -> float:
        middle, scale = float(parameters[0]), float(np.clip(np.exp(parameters[1]), _NARROWEST, _WIDEST))
        return float(_misfits(expit((x[None] - middle) / scale), y, sigma)[0])

    found = (np.inf, 0.0, 1.0)
    for start in np.argsort(coarse)[:3]:
        best = minimize(
            misfit, [m[start], np.log(tau[start])], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}
        )
        found = min(found, (float(best.fun), float(best.x[0]), float(np.clip(np.exp(best.x[1]), _NARROWEST, _WIDEST))))
    return LogisticFit(middle=found[1], scale=found[2], bic=found[0] + 4 * np.log(len(x)))


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
