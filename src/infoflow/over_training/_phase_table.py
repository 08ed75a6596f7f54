"""The table of phases: which curves over training change at once, and when."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import KEYS, Column, TableSchema

from ._clock import of_whole_course
from ._crossings import Crossing
from ._phase import LEAST_POINTS, Phase, phase

_TIMES = ("t10", "t50", "t90")
_NEAR = 0.5  # doublings

PHASES = TableSchema(
    name="phases",
    version=1,
    description="Curves over training: their levels at both ends, when a tenth, a half and nine tenths of the change "
    "were over, and whether it came at once. No time is more exact than the checkpoints around it. Errors are those of "
    "the choice of sentences.",
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
            description="abrupt, gradual, unresolved (too few checkpoints around it), unfinished, started before or no "
            "change",
        ),
        Column(name="delta_bic", dtype="float64", unit="", description="by which a step beats the gradual curves"),
        Column(
            name="at_warm_up",
            dtype="bool",
            unit="",
            description="t50 lies within half a doubling of the end of the warm-up: it may follow the learning rate",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Curves:
    """Curves of a table: one for each value of `by`, of rows where ...; of several rows the highest, or the mean."""

    table: str
    name: str  # with columns in braces
    where: Mapping[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    mean: bool = False  # of several rows the mean


_CURVES = (
    _Curves(table="task_scores", name="loss", where={"split": "test", "metric": "loss"}),
    _Curves(table="task_scores", name="BLEU", where={"split": "test", "metric": "bleu"}),
    _Curves(table="head_patterns", name="induction, best head", where={"pattern": "prefix", "score": "all"}),
    _Curves(
        table="head_surface",
        name="attention to the first token, mean of heads",
        where={"statistic": "first"},
        mean=True,
    ),
    _Curves(table="head_positional", name="positional {offset:+d}, best {kind} head", by=("stack", "kind", "offset")),
    _Curves(
        table="head_relations",
        name="{relation} {direction}, best head",
        where={"convention": "voita", "kind": "self"},
        by=("relation", "direction"),
    ),
    _Curves(
        table="mutual_information",
        name="information with {side}, state {layer} ({regime})",
        by=("stack", "regime", "side", "layer"),
    ),
    _Curves(table="in_context_learning", name="{measure}", by=("measure",)),
    _Curves(table="ngram_agreement", name="{measure}, order {order}", by=("measure", "order")),
    _Curves(table="translation_stages", name="{measure}", where={"rank_bin": "", "n": -1}, by=("measure",)),
    _Curves(table="translation_stages", name="score under {n}-grams", where={"measure": "lm_score"}, by=("n",)),
)


def phases(tables: Mapping[str, pd.DataFrame], warmup: float = float("nan")) -> pd.DataFrame:
    """`PHASES` of one model; empty below eight checkpoints after step 0.

    Args:
        tables: By the name of the measure's table, rows of every checkpoint with `KEYS` and `CLOCKS`; any may be
            absent.
        warmup: Last update of the warm-up, where it is known.
    """
    rows = [
        {**of_whole_course(own.iloc[0].to_dict()), "table": curves.table, "curve": name, **_columns(found, own, warmup)}
        for curves in _CURVES
        for name, own in _each(curves, tables.get(curves.table))
        if (found := _found(own, np.mean if curves.mean else np.max)) is not None
    ]
    return PHASES.conform(pd.DataFrame(rows, columns=PHASES.column_names))


def _each(curves: _Curves, frame: pd.DataFrame | None) -> Iterator[tuple[str, pd.DataFrame]]:
    """The curves, a name and rows each."""
    if frame is None or not {"value", "replicates", *curves.where, *curves.by} <= set(frame.columns):
        return
    chosen = np.all(
        [frame[column] == wanted for column, wanted in curves.where.items()] or [[True] * len(frame)], axis=0
    )
    rows: pd.DataFrame = frame.loc[chosen]
    if not curves.by:
        yield from [(curves.name, rows)] if len(rows) else []
        return
    for _, own in rows.groupby(list(curves.by), sort=False):
        yield curves.name.format(**own.iloc[0][list(curves.by)].to_dict()), own


def _found(own: pd.DataFrame, reduce: Callable) -> Phase | None:
    """The phase of the highest of the rows of each checkpoint, or their mean; the same of each replicate."""
    steps, values, errors = list[int](), list[float](), list[float]()
    for update, rows in own.dropna(subset=["value"]).groupby("update"):
        replicates = np.array([np.asarray(each, dtype=float) for each in rows["replicates"]])
        steps.append(int(update))  # type: ignore[arg-type]
        values.append(float(reduce(rows["value"].to_numpy(float))))
        errors.append(float(reduce(replicates, axis=0).std()) if replicates.size else np.nan)
    errors_ = np.array(errors)
    if sum(step > 0 for step in steps) < LEAST_POINTS or not np.isfinite(errors_).all():
        return None
    # An error of exactly 0 (nothing varies at a checkpoint) would weigh without bound.
    least = max(1e-3 * float(np.ptp(values)), 1e-9)
    return phase(steps, values, np.maximum(errors_, least))


def _columns(found: Phase, own: pd.DataFrame, warmup: float) -> dict[str, Any]:
    crossings: dict[str, Crossing] = {time: getattr(found, time) for time in _TIMES}
    times = {
        f"{name}{side}": value
        for name, at in crossings.items()
        for side, value in (("", float(at)), ("_before", at.before), ("_after", at.after))
    }
    t50, clock = float(found.t50), own.drop_duplicates("update").sort_values("update")
    tokens = np.interp(t50, clock["update"].to_numpy(float), clock["tokens"].to_numpy(float)) if t50 == t50 else np.nan
    facts = {name: getattr(found, name) for name in ("width", "share", "verdict", "delta_bic")}
    near = bool(t50 > 0 and warmup > 0 and abs(np.log2(t50 / warmup)) <= _NEAR)
    levels = {"first": found.start, "last": found.end}  # `start` names a model
    return {**times, **levels, **facts, "t50_tokens": float(tokens), "at_warm_up": near}
