"""Rows of the allocation tables as the report shows them: by model and stack, with component names."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from infoflow.objectives import further_objectives
from infoflow.report._figure import Method
from infoflow.report._shown_models import ShownModels

LOSS_CHANGE = Method(
    id="loss-change",
    title="Loss change allocation",
    text="""
    <i>A</i><sub>i</sub> = Δ<sub>i</sub> ∫ ∂<sub>i</sub><i>L</i>(<i>θ</i> + <i>s</i>Δ) d<i>s</i> along the straight line
    between the weights before and after an update (or several), by the quadrature rule named in the answer;
    Σ<sub>i</sub> <i>A</i><sub>i</sub> is the change of the loss. <i>L</i> is the plain objective on fixed sentences
    with frozen noise, without dropout, label smoothing or weight decay, in float32. A negative allocation helped, a
    positive one hurt. A tied embedding is one parameter. Intervals in the tables resample disjoint parts of the
    sentences. After Lan et al. (2019); per head and between objectives after Vázquez et al. (2022).
    """,
)

# Order of the bars; the colours differ from those of the three objectives.
COMPONENTS = {
    "query": ("query", "var(--series-5)"),
    "key": ("key", "var(--series-3)"),
    "value": ("value", "var(--series-4)"),
    "output": ("output", "var(--series-6)"),
    "cross": ("cross-attention", "var(--soft)"),
    "mlp_in": ("W1", "var(--heat-1)"),
    "mlp_out": ("W2", "var(--heat-2)"),
    "norm": ("norms", "var(--control)"),
}


class ModelStack(NamedTuple):
    """One stack of a line's models."""

    series: str
    stack: str
    label: str


SETS = {"train": "training sentences", "held-out": "held-out sentences"}


def on_train(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of training sentences and of each model's first loss term."""
    return on_set(frame, "train")


def on_set(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of a set of sentences and of each model's first loss term.

    Fact readers, whose parts differ, are covered by the section on retrieval.
    """
    frame = frame.loc[(frame["set"] == name) & ~frame["objective"].isin(further_objectives())]
    return frame.loc[frame["term"] == frame.groupby("model")["term"].transform("first")]


def by_set(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each set on which all models were evaluated, training sentences first."""
    sets = {name: on_set(frame, name) for name in SETS}
    models = set(sets["train"]["model"])
    return {name: rows for name, rows in sets.items() if set(rows["model"]) == models}


def parts_of(frame: pd.DataFrame, models: ShownModels) -> list[ModelStack]:
    """The stacks with blocks, in reading order; a stack is named if its model has two."""
    found = []
    for series in models.present(frame):
        own = frame[(frame["series"] == series.key) & (frame["layer"] >= 0)]
        stacks = sorted(set(own["stack"].astype(str)), reverse=True)
        found += [ModelStack(series.key, s, series.label + (f": {s}" if len(stacks) > 1 else "")) for s in stacks]
    return found


def of_part(frame: pd.DataFrame, part: ModelStack) -> pd.DataFrame:
    return frame.loc[(frame["series"] == part.series) & (frame["stack"] == part.stack)]


def shown_component(frame: pd.DataFrame) -> pd.Series:
    """Cross-attention becomes one component; all others stay."""
    cross = (frame["kind"] == "cross") & frame["component"].isin(["query", "key", "value", "output"])
    return frame["component"].astype(str).mask(cross, "cross")


def most_in_layer(by_layer: pd.Series, held_out: pd.Series | None = None) -> str:
    """`most in layer 3 (21% on held-out sentences)`: training sentences select the layer, held-out ones, if any, give
    its share.
    """
    layer = by_layer.idxmax()
    if held_out is None:
        return f"most in layer {layer} ({by_layer[layer]:.0f}%)"
    return f"most in layer {layer} ({held_out[layer]:.0f}% on held-out sentences)"


def joined(tables: Mapping[ModelStack, pd.DataFrame]) -> pd.DataFrame:
    """Join the tables of all stacks, with the columns `series` and `stack`."""
    return pd.concat([t.assign(series=p.series, stack=p.stack) for p, t in tables.items()], ignore_index=True)


def of_sets(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the tables of all sets of sentences, with the column `set`."""
    return pd.concat([table.assign(set=name) for name, table in tables.items()], ignore_index=True)
