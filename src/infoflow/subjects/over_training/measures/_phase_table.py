"""The table of phases: which curves over training change abruptly, when, and how this varies over seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.foundation import Interval, interval_over_seeds
from infoflow.heads import Crossing, last_crossing
from infoflow.results import END, KEYS, Column, TableSchema
from infoflow.training import of_whole_course

from ._phase import Phase, checked_phase, phase
from ._phase_curves import PhaseCurve

_TIMES = ("t10", "t50", "t90")
_OF_TURNS = ("turn", "out", "back")
RETURNS = "goes and returns"
"""Verdict for a curve with an extremum within the training: it has no single time of change."""
_NEAR = 0.5  # doublings

PHASES = TableSchema(
    name="phases",
    version=2,
    description="Curves over training: their levels at both ends, when a tenth, a half and nine tenths of the change "
    "were done, and whether the change was abrupt. No time is more exact than the checkpoints around it. Errors come "
    "from the choice of sentences.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        Column("table", "string", "", "table that the curve comes from"),
        Column("curve", "string", "", "what the curve shows"),
        Column("first", "float64", "of the curve", "mean of the first three points"),
        Column("last", "float64", "of the curve", "mean of the last three"),
        *(
            Column(f"{time}{side}", "float64", "updates", description)
            for time in _TIMES
            for side, description in (
                ("", f"update at which {time[1:]} % of the change is done; NaN: no change"),
                ("_before", "the last checkpoint before that update"),
                ("_after", "the first checkpoint at or after that update; inf: none"),
            )
        ),
        Column("t50_tokens", "float64", "tokens", "tokens that the loss had seen at t50"),
        Column("width", "float64", "doublings", "doublings from 10 to 90 % of the fitted logistic"),
        Column("share", "float64", "", "updates from 10 to 90 %, as a share of the training"),
        Column(
            "verdict",
            "string",
            "",
            "abrupt, gradual, unresolved (too few checkpoints around the change), unfinished, started before, no "
            "change, or goes and returns, which has no t10, t50 and t90",
        ),
        Column("delta_bic", "float64", "", "BIC by which the logistic beats the gradual curves"),
        Column(
            "at_warm_up",
            "bool",
            "",
            "t50 lies within half a doubling of the end of the warm-up: the change may follow the learning rate",
        ),
        *(
            Column(f"{name}{side}", "float64", "updates", description.format(what))
            for name, what in (
                ("turn", "of the extremum of a curve that goes and returns"),
                ("out", "at which half of the way to the extremum is done"),
                ("back", "at which half of the way back is done"),
            )
            for side, description in (
                ("", "update {}; NaN: the curve does not return"),
                ("_before", "the checkpoint before that {}"),
                ("_after", "the checkpoint after that {}"),
            )
        ),
        Column("extremum", "float64", "of the curve", "mean of the three points around the extremum"),
    ),
)
_ENDS = 3  # points averaged for a level or an extremum
_CLEAR = 4.0  # standard errors beyond both ends, because the maximum of about twenty points is tested
_SHARE = 0.25  # share of the change from end to end that a mere overshoot does not exceed


def phases(curves: Iterable[PhaseCurve], warmup: float = float("nan")) -> pd.DataFrame:
    """`PHASES` for the curves of one model (`phase_curves`), with the last update of the warm-up, if known."""
    rows = [of_whole_course(curve.rows.iloc[0].to_dict()) | _columns(curve, warmup) for curve in curves]
    return PHASES.conform(pd.DataFrame(rows, columns=PHASES.column_names))


def _columns(curve: PhaseCurve, warmup: float) -> dict[str, Any]:
    found = phase(curve.steps, curve.values, curve.errors)
    turned = turning(curve.steps, curve.values, curve.errors)
    names = [f"{name}{side}" for name in (*_TIMES, *_OF_TURNS) for side in ("", "_before", "_after")]
    unknown = dict.fromkeys([*names, "t50_tokens", "width", "share", "delta_bic", "extremum"], np.nan)
    levels = {"table": curve.table, "curve": curve.name, "first": found.start, "last": found.end}
    if turned is not None:
        times = _crossings(turned, _OF_TURNS)
        return {**unknown, **levels, **times, "extremum": turned.value, "verdict": RETURNS, "at_warm_up": False}
    t50, clock = float(found.t50), curve.rows.drop_duplicates("update").sort_values("update")
    tokens = np.interp(t50, clock["update"].to_numpy(float), clock["tokens"].to_numpy(float)) if t50 == t50 else np.nan
    facts = {name: getattr(found, name) for name in ("width", "share", "verdict", "delta_bic")}
    near = bool(t50 > 0 and warmup > 0 and abs(np.log2(t50 / warmup)) <= _NEAR)
    times = _crossings(found, _TIMES)
    return {**unknown, **levels, **times, **facts, "t50_tokens": float(tokens), "at_warm_up": near}


@dataclass(frozen=True, kw_only=True, slots=True)
class Turning:
    """The extremum of a curve that goes and returns, and the half-way times out and back."""

    turn: Crossing  # update of the extremum, with the neighbouring checkpoints
    value: float  # mean of the three points around the extremum
    out: Crossing  # update at half of the way out
    back: Crossing  # update at half of the way back


def _crossings(found: Phase | Turning, names: Sequence[str]) -> dict[str, float]:
    crossings = {name: getattr(found, name) for name in names}
    return {
        f"{name}{side}": value
        for name, at in crossings.items()
        for side, value in (("", float(at)), ("_before", at.before), ("_after", at.after))
    }


def turning(steps: ArrayLike, values: ArrayLike, sigma: ArrayLike) -> Turning | None:
    r"""The interior extremum furthest beyond the levels of both ends; None if the curve does not return.

    Levels and the extremum are means of three points, as in `phase`. The extremum counts if it lies beyond both ends by
    more than 4 standard errors of the difference and a quarter of the change from end to end. Errors are at least the
    curve's own roughness, \(1.4826 \operatorname{median}|r_i|\), where \(r_i\) is the distance of a point
    from the straight line over \(\log_2 t\) between its neighbours, divided by its standard deviation for independent
    points: training noise exceeds the sampling error over sentences. Half-way times are crossings of the isotonic fit.
    (The thresholds are ours.)

    In simulated curves (5,000 updates, errors of .03 to .08 of the change, 200 draws each), seven kinds of monotone
    curves and flat ones had no turning point, except a straight line in t in one of 200 draws. At the default schedule,
    humps as high as the change were found in all draws, and humps half as high in .95 to 1 of them; with 12
    checkpoints, these shares were .57 to .72 and .1 to .27. Add checkpoints if a curve seems to return.

    Args:
        steps: Ascending, at least eight after step 0, which counts only for the first level.
        values: At each step.
        sigma: Standard error of each value.
    """
    times, curve, errors = checked_phase(steps, values, sigma)
    later = times > 0
    t, y = times[later], curve[later]
    error = np.maximum(errors[later], _roughness(np.log2(t), y))
    ends = np.array([curve[:_ENDS].mean(), curve[-_ENDS:].mean()])
    means = np.convolve(y, np.ones(_ENDS) / _ENDS, mode="valid")
    beyond = np.stack([means - ends.max(), ends.min() - means])
    sign, place = np.unravel_index(beyond.argmax(), beyond.shape)
    spread = np.sqrt((error[place : place + _ENDS] ** 2).sum() + (error[-_ENDS:] ** 2).sum()) / _ENDS
    least = max(_CLEAR * spread, _SHARE * abs(ends[1] - ends[0]))
    middle = int(place) + 1  # index of the middle one of the three points
    if beyond[sign, place] <= least or not _ENDS <= middle < len(t) - _ENDS:
        return None
    top, sign_of = float(means[place]), 1 - 2 * int(sign)
    return Turning(
        turn=Crossing(float(t[middle]), float(t[middle - 1]), float(t[middle + 1])),
        value=top,
        out=_half(t[: middle + 1], sign_of * (y[: middle + 1] - ends[0]), sign_of * (top - ends[0])),
        back=_half(t[middle:], sign_of * (top - y[middle:]), sign_of * (top - ends[1])),
    )


def _half(t: Float[np.ndarray, " step"], gone: Float[np.ndarray, " step"], whole: float) -> Crossing:
    """The time at half of the way; only a bound is known if it lies before the first of these checkpoints."""
    from sklearn.isotonic import IsotonicRegression  # slow to import

    risen = IsotonicRegression().fit_transform(np.log2(t), gone) / whole
    if risen[0] >= 0.5:
        return Crossing(float(t[0]), 0.0, float(t[0]))
    return last_crossing(t, risen, 0.5)


def _roughness(x: Float[np.ndarray, " step"], y: Float[np.ndarray, " step"]) -> float:
    """Standard deviation of a point around a smooth curve, from distances to the lines between neighbours."""
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    residual = y[1:-1] - ((1 - share) * y[:-2] + share * y[2:])
    return float(1.4826 * np.median(np.abs(residual) / np.sqrt(1 + share**2 + (1 - share) ** 2)))


# The times of change in the curves of several seeds: their mean and spread.

_LEAST_SEEDS = 3
_OF_MODELS = ("objective", "variant", "architecture", "start")
_CHANGED = ("abrupt", "gradual", "unresolved")

PHASES_OVER_SEEDS = TableSchema(
    name="phases_over_seeds",
    version=2,
    description="Agreement between the phases of the same curve in several seeds. Seeds without a change, or with a "
    "change that began before the first checkpoint or is not over at the last, are counted but give no time.",
    columns=(
        Column("objective", "string", "", "of the models"),
        Column("variant", "string", "", "of the objective"),
        Column("architecture", "string", "", "of the models"),
        Column("start", "string", "", "what their training began from; empty: random"),
        Column("update", "int64", "updates", "-1: over the whole training"),
        Column("table", "string", "", "table that the curve comes from"),
        Column("curve", "string", "", "what the curve shows"),
        Column("seeds", "int64", "seeds", "seeds that have the curve"),
        Column("changed", "int64", "seeds", "seeds whose change begins and ends in the training"),
        Column("abrupt", "int64", "seeds", "seeds whose change is abrupt"),
        Column("verdict", "string", "", "verdict of all seeds; mixed: they differ; unknown: fewer than three seeds"),
        *(
            Column(f"{name}{part}", "float64", unit, description.format(what))
            for name, unit, what in (
                *((time, "updates", f"update at which {time[1:]} % of the change is done") for time in _TIMES),
                ("t50_tokens", "tokens", "tokens that the loss had seen at t50"),
                ("width", "doublings", "doublings from 10 to 90 % of the fitted logistic"),
                ("share", "", "updates from 10 to 90 %, as a share of the training"),
            )
            for part, description in (
                ("", "{}: median of the seeds with a time"),
                ("_least", "{}: the earliest or smallest seed"),
                ("_most", "{}: the latest or largest seed"),
            )
        ),
        Column("t50_mean", "float64", "updates", "geometric mean of t50 over seeds"),
        Column("t50_low", "float64", "updates", "lower end of the 95 % interval of t50_mean over seeds"),
        Column("t50_high", "float64", "updates", "upper end of this interval; NaN below three seeds"),
        Column("at_warm_up", "int64", "seeds", "seeds whose t50 lies at the end of the warm-up"),
    ),
)


def phases_over_seeds(phases: pd.DataFrame) -> pd.DataFrame:
    """`PHASES_OVER_SEEDS` from the table `phases` of several models; a curve that has a seed twice is left out.

    The interval of the mean time is Student's, on the logarithms of the seeds' times. With three seeds it is wide.
    """
    keys = [name for name in _OF_MODELS if name in phases]
    rows = [
        {**own.iloc[0][[*keys, "table", "curve"]].to_dict(), "update": END, **_of_curve(own)}
        for _, own in phases.groupby([*keys, "table", "curve"], sort=False, dropna=False)
        if not own["seed"].duplicated().any()
    ]
    return PHASES_OVER_SEEDS.conform(pd.DataFrame(rows, columns=PHASES_OVER_SEEDS.column_names))


def _of_curve(own: pd.DataFrame) -> dict[str, Any]:
    changed = own[own["verdict"].isin(_CHANGED)]
    verdicts = sorted(set(own["verdict"].astype(str)))
    spread: dict[str, float] = {}
    for name in (*_TIMES, "t50_tokens", "width", "share"):
        known = changed[name].to_numpy(float)
        known = known[np.isfinite(known)]
        reduced = (np.median(known), known.min(), known.max()) if len(known) else (np.nan,) * 3
        spread |= {f"{name}{part}": float(value) for part, value in zip(("", "_least", "_most"), reduced, strict=True)}
    return {
        "seeds": len(own),
        "changed": len(changed),
        "abrupt": int((own["verdict"] == "abrupt").sum()),
        "verdict": "unknown" if len(own) < _LEAST_SEEDS else verdicts[0] if len(verdicts) == 1 else "mixed",
        **spread,
        **_mean(changed["t50"].to_numpy(float)),
        "at_warm_up": int(own["at_warm_up"].astype(bool).sum()),
    }


def _mean(times: np.ndarray) -> dict[str, float]:
    """The geometric mean, and Student's interval of the mean logarithm over seeds."""
    logs = np.log(times[np.isfinite(times) & (times > 0)])
    ends = Interval(np.nan, np.nan)
    if len(logs) >= _LEAST_SEEDS:
        ends = interval_over_seeds([(seed,) for seed in range(len(logs))], logs)
    found = {"t50_mean": logs.mean() if len(logs) else np.nan, "t50_low": ends.low, "t50_high": ends.high}
    return {name: float(np.exp(log)) for name, log in found.items()}
