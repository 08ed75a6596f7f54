"""The times of change in the curves of several seeds: their mean and spread."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import Interval, interval_over_seeds
from infoflow.results import END, Column, TableSchema

_LEAST_SEEDS = 3
_OF_MODELS = ("objective", "variant", "architecture", "start")
_TIMES = ("t10", "t50", "t90")
_CHANGED = ("abrupt", "gradual", "unresolved")

PHASES_OVER_SEEDS = TableSchema(
    name="phases_over_seeds",
    version=2,
    description="Agreement between the phases of the same curve in several seeds. Seeds without a change, or with a "
    "change that began before the first checkpoint or is not over at the last, are counted but give "
    "no time.",
    columns=(
        Column(name="objective", dtype="string", unit="", description="of the models"),
        Column(name="variant", dtype="string", unit="", description="of the objective"),
        Column(name="architecture", dtype="string", unit="", description="of the models"),
        Column(name="start", dtype="string", unit="", description="what their training began from; empty: random"),
        Column(name="update", dtype="int64", unit="updates", description="-1: of their whole course"),
        Column(name="table", dtype="string", unit="", description="where the curve is from"),
        Column(name="curve", dtype="string", unit="", description="what it is of"),
        Column(name="seeds", dtype="int64", unit="seeds", description="that have the curve"),
        Column(name="changed", dtype="int64", unit="seeds", description="whose change begins and ends in the training"),
        Column(name="abrupt", dtype="int64", unit="seeds", description="whose change comes at once"),
        Column(
            name="verdict",
            dtype="string",
            unit="",
            description="the verdict of all seeds; mixed: they differ; unknown: fewer than three",
        ),
        *(
            Column(name=f"{name}{part}", dtype="float64", unit=unit, description=told.format(what))
            for name, unit, what in (
                *((time, "updates", f"update at which {time[1:]} % of the change are over") for time in _TIMES),
                ("t50_tokens", "tokens", "tokens that the loss had seen at t50"),
                ("width", "doublings", "doublings from 10 to 90 % of the fitted logistic"),
                ("share", "", "the same as a share of the training"),
            )
            for part, told in (
                ("", "{}: median of the seeds with a time"),
                ("_least", "{}: the earliest or smallest seed"),
                ("_most", "{}: the latest or largest seed"),
            )
        ),
        Column(name="t50_mean", dtype="float64", unit="updates", description="geometric mean of t50 over seeds"),
        Column(
            name="t50_low", dtype="float64", unit="updates", description="lower end of its 95 % interval over seeds"
        ),
        Column(name="t50_high", dtype="float64", unit="updates", description="its upper end; NaN below three seeds"),
        Column(name="at_warm_up", dtype="int64", unit="seeds", description="whose t50 lies at the end of the warm-up"),
    ),
)


def phases_over_seeds(phases: pd.DataFrame) -> pd.DataFrame:
    """`PHASES_OVER_SEEDS` from the table `phases` of several models; none for models that share objective and seed.

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
    if not len(logs):
        return {"t50_mean": np.nan, "t50_low": np.nan, "t50_high": np.nan}
    ends = Interval(np.nan, np.nan)
    if len(logs) >= _LEAST_SEEDS:
        ends = interval_over_seeds([(seed,) for seed in range(len(logs))], logs)
    return {
        "t50_mean": float(np.exp(logs.mean())),
        "t50_low": float(np.exp(ends.low)),
        "t50_high": float(np.exp(ends.high)),
    }
