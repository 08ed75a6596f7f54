"""Self-describing tables, their registry, and the columns of numbers with intervals."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

from infoflow.foundation import Interval, Scale, block_effects, block_interval, replicate_weights

SUFFIX = "_over_training"
"""Suffix of the names of tables over checkpoints."""
DType = Literal["string", "int64", "float64", "bool", "list<float64>"]


class Column(str):
    """One documented column; it equals its name, so code can read and write the column by this object: `frame[OFFSET]`.

    Renaming a column then takes one edit, which the type checker follows.

    >>> offset = Column("offset", "int64", "tokens", "position of the key minus that of the query")
    >>> pd.DataFrame([{offset: -1}])["offset"].tolist()
    [-1]
    """

    __slots__ = ("description", "dtype", "unit")
    dtype: DType
    unit: str  # "" if the column is a key or a name
    description: str

    def __new__(cls, name: str, dtype: DType, unit: str, description: str) -> "Column":
        self = super().__new__(cls, name)
        self.dtype, self.unit, self.description = dtype, unit, description
        return self

    def __getnewargs__(self) -> tuple[str, DType, str, str]:  # type: ignore[override]
        return self.name, self.dtype, self.unit, self.description

    @property
    def name(self) -> str:
        return str(self)

    def named(self, name: str, description: str = "") -> "Column":
        """The same column under another name."""
        return Column(name, self.dtype, self.unit, description or self.description)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSchema:
    """A typed, versioned, documented, tidy table: each row is one number with its keys.

    A table is declared once, where it is computed, and `TABLES` finds it by name (the first of several).

    Args:
        version: Raised when columns change their names or meaning.
        light: Whether it is cheap enough to be measured at every checkpoint of a training run by default.
        over_training: Whether its rows describe checkpoints of a training run; other tables describe finished models
            and have a second table over training.
        made_by: What a run needs to have this table; "" if every study has it.
        declare: Whether `TABLES` registers it; copies and tables read from files are not declared.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    version: int = 1
    light: bool = False
    over_training: bool = False
    made_by: str = ""
    declare: InitVar[bool] = True

    def __post_init__(self, declare: bool) -> None:
        if declare:
            _DECLARED.setdefault(self.name, self)

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with exactly these columns, in this order and of these types.

        Raises:
            AssertionError: A column is missing or unknown: the measure and its schema disagree.
        """
        missing = set(self.column_names) - set(frame.columns)
        unknown = set(frame.columns) - set(self.column_names)
        assert not missing, f"table {self.name}: missing columns {sorted(missing)}"
        assert not unknown, f"table {self.name}: undocumented columns {sorted(unknown)}"
        dtypes: dict[str, Any] = {c.name: _PANDAS[c.dtype] for c in self.columns}
        conformed = frame[self.column_names].astype(dtypes).reset_index(drop=True)
        conformed.attrs = {}  # notes that were attached while reading do not belong in a file
        return conformed

    @property
    def at_checkpoints(self) -> str:
        """Name of the table with the same numbers at checkpoints."""
        return f"{self.name}{SUFFIX}"

    @property
    def unit(self) -> str:
        """Unit of the column `value`; "" without one."""
        return next((column.unit for column in self.columns if column.name == "value"), "")

    def to_json(self) -> dict[str, Any]:
        """The description that a file stores."""
        columns = [
            {name: getattr(one, name) for name in ("name", "dtype", "unit", "description")} for one in self.columns
        ]
        return {"name": self.name, "version": self.version, "description": self.description, "columns": columns}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TableSchema":
        columns = tuple(Column(**column) for column in value["columns"])
        return cls(**{**value, "columns": columns}, declare=False)

    def with_keys(self, *keys: Column) -> "TableSchema":
        """The same table with additional key columns in front (a study adds model, objective and seed)."""
        return self.named(self.name, self.description, (*keys, *self.columns))

    def named(self, name: str, description: str, columns: tuple[Column, ...]) -> "TableSchema":
        """A table derived from this one, of the same version."""
        return TableSchema(name=name, version=self.version, description=description, columns=columns, declare=False)


_DECLARED: dict[str, TableSchema] = {}
TABLES: Mapping[str, TableSchema] = MappingProxyType(_DECLARED)
"""Every table of the imported parts of infoflow, by name."""

_PANDAS: dict[DType, str] = {
    "string": "string",
    "int64": "int64",
    "float64": "float64",
    "bool": "bool",
    "list<float64>": "object",
}


def estimate_columns(
    unit: str, value: str, baseline: str, count: str = "number of observations behind the value"
) -> tuple[Column, ...]:
    """The columns of every number: value, 95% interval, control, sample size, bootstrap replicates."""
    return (
        Column("value", "float64", unit, value),
        Column(
            "low", "float64", unit, "lower end of the 95% interval over the choice of sentences, see `block_interval`"
        ),
        Column("high", "float64", unit, "upper end of the 95% interval"),
        Column("baseline", "float64", unit, baseline),
        Column("count", "int64", "occurrences", count),
        Column(
            "replicates",
            "list<float64>",
            unit,
            "bootstrap replicates of the value; paired between models measured on the same sentences",
        ),
    )


def estimate(
    value: float,
    replicates: np.ndarray,
    baseline: float,
    count: float,
    *,
    scale: Scale = "any",
    units: int | None = None,
    ends: Interval | None = None,
) -> dict[str, Any]:
    """The columns of `estimate_columns` for one row.

    Args:
        value: The statistic.
        replicates: Its bootstrap replicates, in the order of the rows of `replicate_weights()`.
        baseline: The control.
        count: Number of observations.
        scale: Range of the statistic, see `block_interval`, which computes its interval.
        units: Number of independent units behind the replicates, if smaller than the number of blocks with data.
        ends: The interval, if the replicates are draws of another kind.
    """
    if ends is None:
        ends = block_interval(value, block_effects(value, replicates), units=units, scale=scale, count=count)
    return {
        "value": float(value),
        "low": ends.low,
        "high": ends.high,
        "baseline": float(baseline),
        "count": int(count),
        "replicates": np.asarray(replicates, dtype=np.float64).tolist(),
    }


def ratio_estimate(
    numerator: np.ndarray, denominator: np.ndarray, baseline: float, scale: Scale = "any"
) -> dict[str, Any]:
    """The columns of one row for a ratio of two sums, given per bootstrap block, (64,) each; NaN if nothing counts."""
    weights, total = _weights(), float(denominator.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.float64(numerator.sum()) / denominator.sum()
        replicates = (weights @ numerator) / (weights @ denominator)
        effects = (numerator - value * denominator) / total
    units = int(np.count_nonzero(denominator))
    ends = block_interval(float(value), effects, units=units, scale=scale, count=total)
    return estimate(float(value), replicates, baseline, total, ends=ends)


_SCALES: dict[str, Scale] = {
    **dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "entity_f1", "exact_match", "f1", "rougeL", "auc"), "share"),
    **dict.fromkeys(("p1", "mrr", "ndcg", "recall", "uuas", "root", "preferred", "agreement", "jaccard"), "share"),
    **dict.fromkeys(("pearson", "spearman", "matthews", "later_by_utility", "later_by_likelihood"), "correlation"),
    "r2": "explained",
    **dict.fromkeys(("pwcca", "svcca", "cca", "cka", "cka_minibatch"), "share"),
    "cka_debiased": "explained",
    "rsa": "correlation",
    "procrustes": "positive",
    **dict.fromkeys(("average_similarity", "self_similarity", "shuffled_self_similarity"), "correlation"),
    **dict.fromkeys(("intra_sentence_similarity", "unrelated_intra_sentence_similarity"), "correlation"),
    **dict.fromkeys(("rogue_dimensions", "explainable_variance", "shuffled_explainable_variance"), "share"),
    "intrinsic_dimension": "positive",
}
_SHARES = ("share", "fraction", "probability", "share of facts", "share of examples")
_WRITTEN = ("bleu", "chrf")


def scale_of(metric: str, unit: str = "score") -> Scale:
    """The scale of a metric; for names that no table knows, the scale that follows from the unit of the values.

    Args:
        metric: Name of the metric.
        unit: Unit of the column `value`. Scores of tasks are shares unless they are correlations.
    """
    if metric in _WRITTEN:
        return "percent" if "percent" in unit else "share"
    return _SCALES.get(metric, "share" if unit in ("score", *_SHARES) else "any")


def linear_replicates(value: float, without_block: np.ndarray) -> np.ndarray:
    r"""Bootstrap replicates of a statistic that repeated sentences would bias, from its leave-one-block-out values.

    $$ v_r = v + \sum_b (w_{rb} - 1)(v - v_{(b)}) $$

    w are the weights of `replicate_weights` and v_(b) is the statistic without block b, (64,). To first order in the
    weights these equal the plain bootstrap's replicates. But a plain replicate contains sentences repeatedly or not at
    all, which raises mutual information and PWCCA as scarce data would, by a different amount in each replicate.

    Source: [@efron1982], the jackknife as an approximation to the bootstrap.
    """
    return value + (_weights() - 1) @ (value - without_block)


@cache
def _weights() -> np.ndarray:
    return replicate_weights()
