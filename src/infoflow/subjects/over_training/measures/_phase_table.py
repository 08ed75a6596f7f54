"""The table of phases: which curves over training change abruptly, and when."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import Crossing
from infoflow.results import KEYS, Column, TableSchema
from infoflow.training import of_whole_course

from ._phase import phase
from ._phase_curves import PhaseCurve
from ._turning import Turning, turning

_TIMES = ("t10", "t50", "t90")
_OF_TURNS = ("turn", "out", "back")
RETURNS = "goes and returns"
"""Verdict for a curve with an extremum within the training: it has no single time of change."""
_NEAR = 0.5  # doublings

PHASES = TableSchema(
    name="phases",
    version=2,
    description="Curves over training: their levels at both ends, when a tenth, a half and nine tenths of the change "
    "were done, and whether it was abrupt. No time is more exact than the checkpoints around it. "
    "Errors are "
    "those of the choice of sentences.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        Column(name="table", dtype="string", unit="", description="where the curve is from"),
        Column(name="curve", dtype="string", unit="", description="what it is of"),
        Column(name="first", dtype="float64", unit="of the curve", description="mean of the first three points"),
        Column(name="last", dtype="float64", unit="of the curve", description="mean of the last three"),
        *(
            Column(name=f"{time}{side}", dtype="float64", unit="updates", description=told)
            for time in _TIMES
            for side, told in (
                ("", f"update at which {time[1:]} % of the change are over; NaN: no change"),
                ("_before", "the checkpoint before it"),
                ("_after", "the checkpoint at or after it; inf: none"),
            )
        ),
        Column(name="t50_tokens", dtype="float64", unit="tokens", description="tokens that the loss had seen at t50"),
        Column(name="width", dtype="float64", unit="doublings", description="from 10 to 90 % of the fitted logistic"),
        Column(name="share", dtype="float64", unit="", description="the same as a share of the training"),
        Column(
            name="verdict",
            dtype="string",
            unit="",
            description="abrupt, gradual, unresolved (too few checkpoints around it), unfinished, started before, no "
            "change, or goes and returns, which has no t10, t50 and t90",
        ),
        Column(name="delta_bic", dtype="float64", unit="", description="by which a step beats the gradual curves"),
        Column(
            name="at_warm_up",
            dtype="bool",
            unit="",
            description="t50 lies within half a doubling of the end of the warm-up: it may follow the learning rate",
        ),
        *(
            Column(name=f"{name}{side}", dtype="float64", unit="updates", description=told.format(what))
            for name, what in (
                ("turn", "of the extremum of a curve that goes and returns"),
                ("out", "at which half of the way to the extremum is over"),
                ("back", "at which half of the way back is over"),
            )
            for side, told in (
                ("", "update {}; NaN: it does not return"),
                ("_before", "the checkpoint before that {}"),
                ("_after", "the checkpoint after that {}"),
            )
        ),
        Column(name="extremum", dtype="float64", unit="of the curve", description="mean of the three points there"),
    ),
)


def phases(curves: Iterable[PhaseCurve], warmup: float = float("nan")) -> pd.DataFrame:
    """`PHASES` for the curves of one model.

    Args:
        curves: See `phase_curves`.
        warmup: Last update of the warm-up, if known.
    """
    rows = [
        {
            **of_whole_course(curve.rows.iloc[0].to_dict()),
            "table": curve.table,
            "curve": curve.name,
            **_columns(curve, warmup),
        }
        for curve in curves
    ]
    return PHASES.conform(pd.DataFrame(rows, columns=PHASES.column_names))


def _columns(curve: PhaseCurve, warmup: float) -> dict[str, Any]:
    found = phase(curve.steps, curve.values, curve.errors)
    turned = turning(curve.steps, curve.values, curve.errors)
    levels = {"first": found.start, "last": found.end}  # `start` names a model
    if turned is not None:
        return {**_without_times(), **levels, "verdict": RETURNS, "at_warm_up": False, **_turn_columns(turned)}
    t50, clock = float(found.t50), curve.rows.drop_duplicates("update").sort_values("update")
    tokens = np.interp(t50, clock["update"].to_numpy(float), clock["tokens"].to_numpy(float)) if t50 == t50 else np.nan
    facts = {name: getattr(found, name) for name in ("width", "share", "verdict", "delta_bic")}
    near = bool(t50 > 0 and warmup > 0 and abs(np.log2(t50 / warmup)) <= _NEAR)
    times = _crossings({time: getattr(found, time) for time in _TIMES})
    return {**_without_times(), **levels, **times, **facts, "t50_tokens": float(tokens), "at_warm_up": near}


def _turn_columns(found: Turning) -> dict[str, float]:
    return _crossings({name: getattr(found, name) for name in _OF_TURNS}) | {"extremum": found.value}


def _crossings(found: dict[str, Crossing]) -> dict[str, float]:
    return {
        f"{name}{side}": value
        for name, at in found.items()
        for side, value in (("", float(at)), ("_before", at.before), ("_after", at.after))
    }


def _without_times() -> dict[str, float]:
    names = [f"{name}{side}" for name in (*_TIMES, *_OF_TURNS) for side in ("", "_before", "_after")]
    return dict.fromkeys([*names, "t50_tokens", "width", "share", "delta_bic", "extremum"], np.nan)
