"""The settings of a recording, its tables, and summaries of the hurting counts."""

from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd

from infoflow.foundation import Count, Limits, UserError, check_settings
from infoflow.results import Column, TableSchema, estimate_columns

from ._rules import Rule, quadrature

_LATER = {"tolerance": 0.0, "max_splits": 32}
"""Settings added later, with their earlier implicit values."""


Panels = Annotated[int, Limits(at_least=1, at_most=4096)]
"""Panels of the rule per chord."""
Windows = Annotated[int, Limits(at_least=1, at_most=10**6)]
"""Rows over time, each the sum of consecutive chords."""
Tolerance = Annotated[float, Limits(at_least=0, at_most=100)]
"""The residual per chord, in nats, above which panels are doubled; 0: never."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordSettings:
    """How loss changes are allocated during training: the settings of a plan."""

    rule: Rule = "trapezoid"  # costs the same as first order and was 70 times more accurate
    splits: Panels = 1  # panels of the rule per chord
    tolerance: Tolerance = 0.0  # in nats; above 0, Simpson's panels double while a residual exceeds it
    max_splits: Panels = 32  # panels at which to stop doubling
    every: Count = 1  # updates per chord; above 1, hurting steps are counted in chords
    windows: Windows = 200  # maximum number of rows over time; each row sums consecutive chords

    def __post_init__(self) -> None:
        check_settings(self, "dynamics")
        quadrature(self.rule, self.splits)
        if self.tolerance and self.rule != "simpson":
            raise UserError(
                "dynamics.tolerance above 0 needs the rule simpson, whose panels can double. Got tolerance "
                f"{self.tolerance} and {self.rule}. Leave the tolerance out, or set dynamics.rule to simpson."
            )
        if self.tolerance and self.splits > self.max_splits:
            raise UserError(
                "dynamics.max_splits must be at least dynamics.splits. Got "
                f"{self.max_splits} and {self.splits}. Raise the one or lower the other."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordConfig(RecordSettings):
    """How loss changes are allocated during training."""

    parameters: bool = True  # statistics of single parameters, for the first set: 8 numbers each, and 2 more with parts
    check_rules: bool = True  # one more gradient per window, to measure the error of other rules
    separate_bias: bool = False  # biases as separate components instead of with their matrices

    @property
    def untold(self) -> frozenset[str]:
        """Settings with the values that earlier versions implied; a recording's key leaves them out."""
        return frozenset(name for name, value in _LATER.items() if getattr(self, name) == value)


# The table of hurting parameters: how often, when last and by how much components raised the loss.


HURTING_COMPONENTS = {
    "embeddings": "embeddings",
    "key": "key",
    "query": "query",
    "value": "value",
    "output": "output",
    "mlp_in": "W1",
    "mlp_out": "W2",
}


def hurting_counts(hurting: pd.DataFrame, by: str = "objective") -> pd.DataFrame:
    """Steps in which each component, as a sum over its layers, raised the loss on training sentences.

    Attention of both stacks and cross-attention count together: each is one block in every step.

    Args:
        hurting: The table `allocation_hurting`.
        by: The column that distinguishes columns of the table.

    Returns:
        by, seed, component, times (blocks and steps), share (of these), last (update; -1: never) and largest (nats),
        for each model's first loss term.
    """
    rows = hurting.loc[(hurting["set"] == "train") & (hurting["level"] == "block")]
    rows = rows.loc[rows["component"].isin(HURTING_COMPONENTS)]
    rows = rows.loc[rows["term"] == rows.groupby("model")["term"].transform("first")]
    rows = rows.assign(times=rows["hurt"] * rows["chords"])
    grouped: Any = rows.groupby([by, "seed", "component"], sort=False)
    table = grouped.agg(
        times=("times", "sum"), of=("chords", "sum"), last=("last_hurt", "max"), largest=("largest", "max")
    )
    return table.assign(share=table["times"] / table.pop("of")).reset_index()


def hurting_table(hurting: pd.DataFrame, by: str = "objective") -> pd.DataFrame:
    """The table of hurting parameters as texts: one column per objective, means over seeds.

    Its last row is the control: the share of single parameters that raise the loss in an average step.
    """
    counts = hurting_counts(hurting, by)
    single = hurting.loc[(hurting["set"] == "train") & (hurting["level"] == "parameter")]
    columns = {}
    for name, own in counts.groupby(by, sort=False):
        means = own.groupby("component", sort=False)[["times", "share", "largest"]].mean()
        cells = {
            label: f"{means.loc[key, 'times']:,.0f} ({means.loc[key, 'share']:.1%})" if key in means.index else "–"
            for key, label in HURTING_COMPONENTS.items()
        }
        last, top = float(own.groupby("seed")["last"].max().mean()), means["largest"].idxmax()
        largest = float(means.loc[top, "largest"])
        cells["last step that hurt"] = f"{last:,.0f}" if last >= 0 else "none"
        cells["largest rise [nats]"] = f"{largest:.2g} ({HURTING_COMPONENTS[str(top)]})" if largest > 0 else "none"
        cells["single parameters (control)"] = f"{single.loc[single[by] == name, 'hurt'].mean():.1%}"
        columns[name] = cells
    return pd.DataFrame(columns)


# The tables of a recording.


def _text(name: str, description: str) -> Column:
    return Column(name, "string", "", description)


def _whole(name: str, unit: str, description: str) -> Column:
    return Column(name, "int64", unit, description)


def _number(name: str, unit: str, description: str) -> Column:
    return Column(name, "float64", unit, description)


_TARGET = (
    _text("set", "where the evaluated sentences come from: train or held-out"),
    _text("term", "term of the loss"),
)
_WINDOW = (
    _whole("window", "", "number of the window, from 0; windows add up consecutive chords"),
    _whole("begin", "updates", "updates before the window"),
    _whole("end", "updates", "updates up to the end of the window"),
)
_GROUP = (
    _text("component", "embeddings, positions, query, key, value, output, mlp_in (W1), mlp_out (W2), norm, head, ..."),
    _text("stack", "encoder, decoder; empty where both share it"),
    _whole("layer", "", "block, from 0; -1 outside the blocks"),
    _text("kind", "self or cross for attention and its norm, else empty"),
)
_INTERVAL = (
    "Intervals and replicates: bootstrap over the disjoint parts of the examples, widened for their small number"
)

ALLOCATION_WINDOWS = TableSchema(
    name="allocation_windows",
    description="The loss over training, what its allocation adds up to, and how many parameters help. Shares of "
    "parameters are means over the chords of a window; NaN where single parameters were not followed.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        *_TARGET,
        *_WINDOW,
        _number("loss_start", "nats per item", "loss on the set before the window"),
        _number("loss_end", "nats per item", "loss on the set after the window"),
        _number("allocated", "nats per item", "sum of all allocations in the window"),
        _number("residual", "nats per item", "mean over chords of |loss change - sum of the allocation|"),
        _number("helped", "share of parameters", "parameters whose allocation is negative"),
        _number("hurt", "share of parameters", "parameters whose allocation is positive"),
        _number("zero", "share of parameters", "parameters whose allocation is exactly 0"),
        _number(
            "alternated",
            "share of parameters",
            "parameters whose sign differs from the preceding chord, among those that moved in both",
        ),
        _number("top_share", "share of the sum of |A|", "share of the largest 1 % of |A| (normal distribution: .036)"),
    ),
)
ALLOCATION_STEPS = TableSchema(
    name="allocation_steps",
    description="Loss change allocated to each group of parameters in each window; negative: it lowered the loss. The "
    "groups of a window add up to its loss change, up to the residual.",
    over_training=True,
    made_by="a plan with [dynamics] on = true makes it",
    columns=(*_TARGET, *_WINDOW, *_GROUP, _number("value", "nats per item", "sum of the group's allocations")),
)
ALLOCATION_GROUPS = TableSchema(
    name="allocation_groups",
    description=f"Loss change allocated to each group over the whole training. {_INTERVAL}.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        *_TARGET,
        *_GROUP,
        _whole("parameters", "", "parameter elements of the group"),
        _number("per_parameter", "nats per item and parameter", "value divided by the number of parameters"),
        _number("share", "share of the loss change", "value divided by the sum over all groups; may be negative"),
        *estimate_columns(
            "nats per item",
            "sum of the group's allocations over all chords (a chord: the straight line between two recorded sets of "
            "weights); negative: it lowered the loss",
            "the value if every parameter had the same allocation",
            "supervised items of the examples",
        ),
    ),
)
ALLOCATION_HEADS = TableSchema(
    name="allocation_heads",
    description="Loss change allocated to each attention head over the whole training: its rows of the query, key and "
    f"value projections and its columns of the output projection. {_INTERVAL}.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        _TARGET[0],
        _TARGET[1],
        _text("stack", "encoder or decoder"),
        _text("kind", "self or cross"),
        _whole("layer", "", "block, from 0"),
        _whole("head", "", "head, from 0; -1: the output bias, and keys and values that several heads share"),
        _whole("parameters", "", "parameter elements"),
        *estimate_columns(
            "nats per item",
            "sum of the head's allocations; the rows of a layer and kind add up to its attention",
            "mean of the sums over the heads of the layer and kind",
            "supervised items of the examples",
        ),
    ),
)
ALLOCATION_HURTING = TableSchema(
    name="allocation_hurting",
    description="How often, when last and by how much groups and their parameters raised the loss. For groups, "
    "the sum over a chord decides; at level 'parameter', each parameter is counted separately, and the numbers are "
    "shares of all parameters and chords.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        *_TARGET,
        _text("level", "block (a component over all layers), layer, group, or parameter (of the group)"),
        *_GROUP,
        _whole("chords", "", "chords that were counted"),
        _whole("updates_per_chord", "updates", "1: every optimiser step is a chord"),
        _number("hurt", "share", "chords with a positive allocation"),
        _number("helped", "share", "chords with a negative allocation"),
        _number("zero", "share", "chords with an allocation of exactly 0"),
        _whole("last_hurt", "update", "end of the last chord that hurt; -1: none (parameters: the last of any)"),
        _number("largest", "nats per item", "largest allocation in one chord; negative where none hurt"),
        _whole("largest_update", "update", "end of the chord with the largest allocation"),
    ),
)
ALLOCATION_RELIABILITY = TableSchema(
    name="allocation_reliability",
    description="How far the recording can be trusted: residuals of the rule in use and of others on the same steps, "
    "agreement of two halves of the examples, and what it cost.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        *_TARGET,
        _text("statistic", "what is reported"),
        _text("rule", "quadrature rule; empty where it does not matter; other rules are known only for some chords"),
        _number("value", "see unit", "the figure"),
        _text("unit", "unit of the value"),
    ),
)
ALLOCATION_HISTOGRAM = TableSchema(
    name="allocation_histogram",
    description="Allocations of single parameters in the chords that end a window, counted in bins of half a decade; "
    "empty bins are left out. Negative: the parameter lowered the loss.",
    columns=(
        *_TARGET,
        *_GROUP,
        _number("low", "nats per item", "lower end of the bin; both ends 0: exactly 0"),
        _number("high", "nats per item", "upper end"),
        _whole("count", "parameters and chords", "allocations in the bin"),
        _whole("chords", "", "chords that were counted"),
    ),
)
TABLES = (
    ALLOCATION_WINDOWS,
    ALLOCATION_STEPS,
    ALLOCATION_GROUPS,
    ALLOCATION_HEADS,
    ALLOCATION_HURTING,
    ALLOCATION_RELIABILITY,
    ALLOCATION_HISTOGRAM,
)
"""The schemas of all tables of loss change allocation."""
