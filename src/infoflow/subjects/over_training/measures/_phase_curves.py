"""The curves over training that are searched for phases, and their piecewise linear fits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.heads import HEAD_PATTERNS, HEAD_POSITIONAL, HEAD_RELATIONS, HEAD_SURFACE
from infoflow.representations import MUTUAL_INFORMATION
from infoflow.results import KEYS, TASK_SCORES, Column, TableSchema
from infoflow.training import CLOCKS

from ._in_context_measure import IN_CONTEXT_LEARNING
from ._ngram_agreement import NGRAM_AGREEMENT
from ._phase import LEAST_POINTS, change_points
from ._translation_stages import TRANSLATION_STAGES

PHASE_CURVES = TableSchema(
    name="phase_curves",
    description="The curves over training that `phases` analyses, at every checkpoint, with their fit by one to four "
    "consecutive straight lines over log2 of the update (number chosen by BIC): a visual aid, not a finding by itself. "
    "Errors come from the choice of sentences.",
    over_training=True,
    columns=(
        *KEYS,
        *CLOCKS,
        Column("table", "string", "", "table that the curve comes from"),
        Column("curve", "string", "", "what the curve shows"),
        Column("value", "float64", "of the curve", "at this checkpoint"),
        Column("error", "float64", "of the curve", "standard error of the value"),
        Column("segment", "int64", "", "number of the line through this point, from 0; -1: none, at step 0"),
        Column("line", "float64", "of the curve", "height of the line; NaN at step 0"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Curves:
    """Curves of a table, one for each value of `by`: at each checkpoint, the highest or the mean of the kept rows."""

    table: str
    name: str  # template with column names in braces
    where: Mapping[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    mean: bool = False  # whether several rows are averaged; else the highest counts


_CURVES = (
    _Curves(table=TASK_SCORES.name, name="loss", where={"split": "test", "metric": "loss"}),
    _Curves(table=TASK_SCORES.name, name="BLEU", where={"split": "test", "metric": "bleu"}),
    _Curves(table=HEAD_PATTERNS.name, name="induction, best head", where={"pattern": "prefix", "score": "all"}),
    _Curves(
        table=HEAD_SURFACE.name,
        name="attention to the first token, mean of heads",
        where={"statistic": "first"},
        mean=True,
    ),
    _Curves(
        table=HEAD_POSITIONAL.name, name="positional {offset:+d}, best {kind} head", by=("stack", "kind", "offset")
    ),
    _Curves(
        table=HEAD_RELATIONS.name,
        name="{relation} {direction}, best head",
        where={"convention": "voita", "kind": "self"},
        by=("relation", "direction"),
    ),
    _Curves(
        table=MUTUAL_INFORMATION.name,
        name="information with {side}, state {layer} ({regime})",
        by=("stack", "regime", "side", "layer"),
    ),
    _Curves(table=IN_CONTEXT_LEARNING.name, name="{measure}", by=("measure",)),
    _Curves(table=NGRAM_AGREEMENT.name, name="{measure}, order {order}", by=("measure", "order", "context")),
    _Curves(table=TRANSLATION_STAGES.name, name="{measure}", where={"rank_bin": "", "n": -1}, by=("measure",)),
    _Curves(table=TRANSLATION_STAGES.name, name="score under {n}-grams", where={"measure": "lm_score"}, by=("n",)),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PhaseCurve:
    """One curve of a model over its checkpoints."""

    table: str
    name: str
    steps: Float[np.ndarray, " step"]
    values: Float[np.ndarray, " step"]
    errors: Float[np.ndarray, " step"]  # standard errors, positive
    rows: pd.DataFrame  # rows of the curve


def phase_curves(tables: Mapping[str, pd.DataFrame]) -> Iterator[PhaseCurve]:
    """The curves of one model with errors and at least eight checkpoints after step 0, from its measures' tables."""
    for curves in _CURVES:
        for name, own in _each(curves, tables.get(curves.table)):
            if (found := _curve(curves, name, own)) is not None:
                yield found


def phase_curve_rows(curves: list[PhaseCurve]) -> pd.DataFrame:
    """`PHASE_CURVES` of the curves of one model."""
    columns = [column.name for column in (*KEYS, *CLOCKS)]
    parts = []
    for curve in curves:
        clock = curve.rows.drop_duplicates("update").set_index("update").loc[curve.steps.astype(int)].reset_index()
        segment, line = _lines(curve.steps, curve.values, curve.errors)
        facts = {"table": curve.table, "curve": curve.name, "value": curve.values, "error": curve.errors}
        parts.append(clock.reindex(columns=columns).assign(**facts, segment=segment, line=line))
    return PHASE_CURVES.conform(pd.concat(parts) if parts else pd.DataFrame(columns=PHASE_CURVES.column_names))


def _lines(
    steps: Float[np.ndarray, " step"], values: Float[np.ndarray, " step"], errors: Float[np.ndarray, " step"]
) -> tuple[np.ndarray, np.ndarray]:
    """Index and height of the line at each step."""
    found = change_points(steps, values, errors)
    segment = np.where(steps > 0, np.searchsorted(found.steps, steps, side="right"), -1)
    line = np.full(len(steps), np.nan)
    for number in range(len(found.steps) + 1):
        own = segment == number
        logs = np.log2(steps[own])
        line[own] = np.polyval(np.polyfit(logs, values[own], 1), logs)
    return segment, line


def _each(curves: _Curves, frame: pd.DataFrame | None) -> Iterator[tuple[str, pd.DataFrame]]:
    """The name and the rows of each curve; names are unique in this table."""
    if frame is None or not {"value", "replicates", *curves.where, *curves.by} <= set(frame.columns):
        return
    rows = frame
    for column, wanted in curves.where.items():
        rows = rows.loc[rows[column] == wanted]
    if not curves.by:
        yield from [(curves.name, rows)] if len(rows) else []
        return
    unnamed = [name for name in curves.by if f"{{{name}" not in curves.name and len(set(rows[name])) > 1]
    for _, own in rows.groupby(list(curves.by), sort=False):
        first = own.iloc[0]
        name = curves.name.format(**first[list(curves.by)].to_dict())
        yield ", ".join([name, *(str(first[column]) for column in unnamed)]), own


def _curve(curves: _Curves, name: str, own: pd.DataFrame) -> PhaseCurve | None:
    """The highest or the mean of each checkpoint's rows; errors come from the same statistic on each replicate."""
    reduce: Callable = np.mean if curves.mean else np.max
    steps, values, errors = list[int](), list[float](), list[float]()
    for update, rows in own.dropna(subset=["value"]).groupby("update"):
        replicates = np.array([np.asarray(each, dtype=float) for each in rows["replicates"]])
        steps.append(int(update))  # type: ignore[arg-type]
        values.append(float(reduce(rows["value"].to_numpy(float))))
        errors.append(float(reduce(replicates, axis=0).std()) if replicates.size else np.nan)
    errors_ = np.array(errors)
    if sum(step > 0 for step in steps) < LEAST_POINTS or not np.isfinite(errors_).all():
        return None
    # An error of exactly 0 (nothing varies at a checkpoint) would have infinite weight.
    least = max(1e-3 * float(np.ptp(values)), 1e-9)
    return PhaseCurve(
        table=curves.table,
        name=name,
        steps=np.array(steps, dtype=float),
        values=np.array(values),
        errors=np.maximum(errors_, least),
        rows=own,
    )
