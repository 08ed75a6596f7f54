"""What is measured at the checkpoints of a training, and the analysis of the training: when layers settle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.heads import checked_curve, last_crossing
from infoflow.models import Model
from infoflow.results import KEYS, Column, TableSchema
from infoflow.training import CLOCKS, of_whole_course

from ._convergence import (
    CONVERGENCE,
    DISPLACEMENT,
    PREDICTION_DIVERGENCE,
    SEED_DIVERGENCE,
    References,
    prediction_divergence,
)
from ._in_context_measure import InContextLearning
from ._loss_by_frequency import EMBEDDING_CHANGE, LossByFrequency, LossByPosition, embedding_change
from ._ngram_agreement import NgramAgreement
from ._phase_curves import PHASE_CURVES, phase_curve_rows, phase_curves
from ._phase_table import PHASES, phases
from ._role_tables import HEAD_ROLE_EVENTS, ROLE_TURNOVER, role_tables
from ._source_contribution import SourceContribution
from ._translation_stages import TranslationStages
from ._weight_change import WEIGHT_CHANGE, EffectiveRank, weight_change

AMONG_CHECKPOINTS = (CONVERGENCE.name, WEIGHT_CHANGE.name, PREDICTION_DIVERGENCE.name, EMBEDDING_CHANGE.name)
"""Tables that compare checkpoints of one training with each other."""
AMONG_SEEDS = (SEED_DIVERGENCE.name,)  # tables that compare checkpoints of two training runs of a study, on request
OF_CHECKPOINTS = (*AMONG_CHECKPOINTS, *AMONG_SEEDS)
MEASURES = (
    NgramAgreement,  # reads the sentences for all measures that need losses
    LossByPosition,
    LossByFrequency,
    InContextLearning,
    TranslationStages,
    SourceContribution,
    EffectiveRank,
)


# Measures that compare a checkpoint with other checkpoints of the same training.


class _AgainstCheckpoints(Intervention):
    """A model compared with other checkpoints, which are loaded by name."""

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)


class WeightChange(_AgainstCheckpoints):
    """`weight_change` against other checkpoints of the same training.

    Args:
        references: Loads "initial", "previous" and "final", if they exist.
        key: A name or hash that stands for them in the keys of results.
    """

    table: ClassVar[TableSchema] = WEIGHT_CHANGE

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        others = self._references()
        return weight_change(reader.model, others.get("initial"), others.get("previous"), others.get("final"))


class PredictionDivergence(_AgainstCheckpoints):
    """`prediction_divergence` from the last checkpoint of the same training.

    Args:
        references: Loads that checkpoint, as "final".
        key: A name or hash that stands for it in the keys of results.
    """

    table: ClassVar[TableSchema] = PREDICTION_DIVERGENCE

    def refusal(self, model: Model) -> str | None:
        return "it predicts no token" if model.task == "encoder" else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        return prediction_divergence(reader.model, self._references()["final"], reader.corpus, options=options)


class EmbeddingChange(_AgainstCheckpoints):
    """`embedding_change` from the last checkpoint of the same training, by frequency in its training text.

    Args:
        references: Loads that checkpoint, as "final".
        key: A name or hash that stands for it in the keys of results.
    """

    table: ClassVar[TableSchema] = EMBEDDING_CHANGE
    static: ClassVar[bool] = True

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        read = reader.counted_rows(reader.source_stack)
        ordinary = np.asarray(read.flat_ids)[~np.asarray(read.flat_special)]
        return embedding_change(reader.model, self._references()["final"], np.bincount(ordinary))


class SeedDivergence(_AgainstCheckpoints):
    r"""\(\mathrm{KL}(p'_t \,\|\, p_t)\) of predictions of two training runs at update t: see `prediction_divergence`.

    Args:
        references: Loads the other seed's checkpoint, as "seed".
        key: A name or hash that stands for it in the keys of results.
    """

    table: ClassVar[TableSchema] = SEED_DIVERGENCE

    def refusal(self, model: Model) -> str | None:
        return "it predicts no token" if model.task == "encoder" else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = prediction_divergence(reader.model, self._references()["seed"], reader.corpus, options=options)
        return SEED_DIVERGENCE.conform(found)


# Tables of convergence: normalised by each layer's start, with the time of settling.

_CURVE = ["stack", "layer", "kind", "reference", "similarity"]

CONVERGENCE_OVER_TRAINING = CONVERGENCE.named(
    CONVERGENCE.name,
    CONVERGENCE.description,
    (
        *KEYS,
        *CLOCKS,
        *CONVERGENCE.columns,
        Column(
            "normalised",
            "float64",
            "1",
            "share of the way from the similarity at step 0 to 1; NaN if the layer began close to 1, or step 0 was "
            "not measured",
        ),
    ),
)
CONVERGENCE_TIME = TableSchema(
    name="convergence_time",
    description="When each layer settled: the last upward crossing of .9 of the way from its start to the reference, "
    "between two checkpoints.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        *(column for column in CONVERGENCE.columns if column.name in _CURVE),
        Column("time", "float64", "updates", "time of settling, interpolated in log2 t; NaN: never"),
        Column("before", "float64", "updates", "the last checkpoint before this time"),
        Column("after", "float64", "updates", "the first checkpoint at or after this time"),
        Column(
            "null_time",
            "float64",
            "updates",
            "the same for the null: when the final weights with noise as large as the remaining distance would "
            "have settled; NaN: never, or another reference",
        ),
        Column("area", "float64", "1", "mean of the normalised curve over log2 t"),
    ),
)
_SETTLED = 0.9
_LEAST_CHANGE = 0.05  # smallest 1 - s(0) for which convergence is defined: below it, a layer already starts close to 1


def settled(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `CONVERGENCE_OVER_TRAINING` and `CONVERGENCE_TIME`, from the rows of one model's `LayerConvergence`."""
    ordered = frame.sort_values("update", kind="stable").reset_index(drop=True)
    normalised, times = np.full(len(ordered), np.nan), list[dict[str, Any]]()
    fixed = ordered[(ordered["similarity"] != DISPLACEMENT) & ordered["reference"].isin(["final", "other-seed"])]
    for _, own in fixed.groupby(_CURVE, sort=False):  # the curves that converge to 1: similarities to fixed references
        steps = own["update"].to_numpy()
        if steps[0] != 0 or np.isnan(own["value"]).any():
            continue
        found = normalised_convergence(steps, own["value"].to_numpy())
        normalised[own.index.to_numpy()] = found.values
        nulls = own["null"].to_numpy(dtype=float)
        null_time = float("nan") if np.isnan(nulls).any() else normalised_convergence(steps, nulls).time
        own_times = {name: getattr(found, name) for name in ("time", "before", "after", "area")}
        row = own.iloc[0].to_dict()
        curve = {name: row[name] for name in _CURVE}
        times.append({**of_whole_course(row), **curve, "null_time": null_time, **own_times})
    return (
        CONVERGENCE_OVER_TRAINING.conform(ordered.assign(normalised=normalised)),
        CONVERGENCE_TIME.conform(pd.DataFrame(times, columns=CONVERGENCE_TIME.column_names)),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Convergence:
    """A similarity to the reference, from 0 at the start to 1, and when it settles; NaN if it began close to 1."""

    values: np.ndarray  # (step,)
    time: float  # update of the last upward crossing of the level
    before: float  # checkpoints around it: (before, after]
    after: float
    area: float  # mean over log2 t from the first update on: 1 if it settled at once


def normalised_convergence(steps: ArrayLike, similarity: ArrayLike, level: float = _SETTLED) -> Convergence:
    r"""Similarity to a reference as a share of the distance from the start.

    $$ c(t) = \frac{s(t) - s(0)}{1 - s(0)}, \qquad
       \mathrm{area} = \frac{1}{\log_2 N - \log_2 t_1} \int c \, d\log_2 t $$

    by the trapezoidal rule, from the first available update. The time of settling is the last upward crossing of
    `level`, linear in log2 t. The result is NaN if 1 − s(0) < .05.

    Args:
        steps: Ascending, step 0 first.
        similarity: At each step, at most 1: CKA, PWCCA, ...
        level: Value that counts as settled.

    Raises:
        UserError: The steps do not start with 0, or their number differs from that of the values.

    >>> found = normalised_convergence([0, 1, 4, 16, 64, 256, 1024], [0.2, 0.2, 0.24, 0.44, 0.76, 0.92, 1])
    >>> round(found.time), round(found.area, 2)
    (256, 0.49)
    """
    times, curve = checked_curve(steps, similarity)
    if times[0] != 0:
        raise UserError(f"Convergence is measured from step 0. Got steps from {times[0]:g} on. Measure step 0 too.")
    if not 1 - curve[0] >= _LEAST_CHANGE:
        return Convergence(values=np.full(len(times), np.nan), time=np.nan, before=np.nan, after=np.nan, area=np.nan)
    values = (curve - curve[0]) / (1 - curve[0])
    crossing = last_crossing(times, values, level)
    return Convergence(
        values=values,
        time=float(crossing),
        before=crossing.before,
        after=crossing.after,
        area=_mean_over_log_time(times[1:], values[1:]),
    )


def _mean_over_log_time(times: np.ndarray, values: np.ndarray) -> float:
    if len(times) < 2:
        return math.nan
    logs = np.log2(times)
    return float(np.trapezoid(values, logs) / (logs[-1] - logs[0]))


# Analysis of a model's whole training from the tables of its checkpoints.

COURSE_TABLES: tuple[TableSchema, ...] = (
    CONVERGENCE_OVER_TRAINING, CONVERGENCE_TIME, HEAD_ROLE_EVENTS, ROLE_TURNOVER, PHASES, PHASE_CURVES,
)  # fmt: skip
"""Tables of `course_tables`."""


def course_tables(tables: Mapping[str, pd.DataFrame], warmup: float = float("nan")) -> dict[str, pd.DataFrame]:
    """Convergence, roles and phases of one model, from its tables at all checkpoints (with `KEYS` and `CLOCKS`)."""
    found = role_tables(tables)
    if CONVERGENCE.name in tables and len(tables[CONVERGENCE.name]):
        rows, times = settled(tables[CONVERGENCE.name])
        found |= {CONVERGENCE_OVER_TRAINING.name: rows, CONVERGENCE_TIME.name: times}
    curves = list(phase_curves(tables))
    found |= {PHASES.name: phases(curves, warmup), PHASE_CURVES.name: phase_curve_rows(curves)}
    return {name: frame for name, frame in found.items() if len(frame)}
