"""Rows of the allocation tables, and layer × component bars of the loss change, replayed over training."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.objectives import further_objectives
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel
from infoflow.report._in_words import ANY_PERCENT, Candidate, extremes_words, listed, percent_over_models, percent_span
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import amount, by_key, finished, tips
from infoflow.report.forms._marks import calculated, channel, draw, nested

from ..measures import ALLOCATION_GROUPS, ALLOCATION_STEPS

# Rows of the allocation tables as the report shows them: by model and stack, with component names.


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


# Layer × component bars of the loss change, replayed over training.


_FRAMES = 24
_FEED_FORWARD = ("mlp_in", "mlp_out")


def _bars(steps: dict[str, pd.DataFrame], groups: pd.DataFrame, models: ShownModels) -> Drawn:
    """Share of each layer and component in the loss change of a stack's blocks, up to a chosen update."""
    parts = parts_of(groups, models)
    all_tables = {name: {part: _frames(of_part(own, part)) for part in parts} for name, own in steps.items()}
    tables = all_tables["train"]
    frames = _moments(next(iter(tables.values())))
    reach = _reach([table for each in all_tables.values() for table in each.values()])
    data = of_sets({name: joined(each) for name, each in all_tables.items()})
    return Drawn(
        data=data,
        panels=[
            Panel(spec=_chart([each[part] for each in all_tables.values()], frames, reach), title=part.label)
            for part in parts
        ],
        answer=[_blocks_sentence(all_tables), _outside_sentence(groups, models), *_held_out_sentence(all_tables)],
        words=_words({part: of_part(steps["train"], part) for part in parts}, groups),
        caption=f"Means over {int(groups['seed'].nunique())} seeds. 100% is the total by which the blocks of a stack "
        "lowered the loss by the end of training; parts to the left of 0 raised it.",
        payload={
            "frames": [int(update) for update in frames],
            "sets": [SETS[name] for name in steps],
            "legend": [{"label": label, "color": color} for label, color in _legend(data)],
        },
    )


def _legend(data: pd.DataFrame) -> list[tuple[str, str]]:
    present = set(data["component"])
    return [entry for name, entry in COMPONENTS.items() if name in present]


def _frames(steps: pd.DataFrame) -> pd.DataFrame:
    """Cumulative share of each layer and component at about 24 updates; means over seeds."""
    steps = _in_blocks(steps)
    sums: Any = steps.groupby(["end", "layer", "component"])["value"].sum() / steps["seed"].nunique()
    grid = sums.unstack(["layer", "component"]).fillna(0.0).sort_index().cumsum()
    grid = 100 * grid / abs(float(grid.iloc[-1].sum()) or 1.0)
    rows = np.unique(np.linspace(0, len(grid) - 1, min(_FRAMES, len(grid))).round().astype(int))
    table = (-grid.iloc[rows]).stack(["layer", "component"], future_stack=True).rename("share").reset_index()
    table["frame"] = table["end"].map({end: index for index, end in enumerate(grid.index[rows])})
    return table.rename(columns={"end": "update"}).dropna(subset="share")


def _moments(table: pd.DataFrame) -> list[int]:
    return sorted(set(table["update"]))


def _reach(tables: list[pd.DataFrame]) -> tuple[float, float]:
    """From the longest left bar to the longest right bar, over all panels and moments."""
    ends = []
    for table in tables:
        for sign in (1, -1):
            bars = (sign * table["share"]).clip(lower=0).groupby([table["frame"], table["layer"]]).sum()
            ends.append(sign * float(bars.max()))
    return min(ends), max(ends)


def _chart(tables: list[pd.DataFrame], moments: list[int], reach: tuple[float, float]) -> dict[str, Any]:
    """One bar per layer: the page sets `shown` to a set of sentences and `frame` to a moment."""
    rows = _rows(tables, len(moments))
    layers = sorted({row["layer"] for row in rows}, reverse=True)
    base = calculated(nested(rows), share="datum.shares[shown][frame]", update=f"{moments}[frame]")
    x = amount("x", "share", "% of the blocks' loss change", reach, nice=True, ticks=None, stack="zero")
    bars = draw(
        "bar",
        base,
        height={"band": 0.78},
        x=x,
        y=channel("y", "layer:O", title="layer", sort=layers, axis={"labelPadding": 6}),
        color=by_key("color", "name", *zip(*COMPONENTS.values(), strict=True)),
        order="order:Q",
        tooltip=tips("layer:O", "name:N|component", "share:Q|% of the loss change|.2f", "update:Q|until update|,"),
    )
    zero = draw("rule", pd.DataFrame({"share": [0.0]}), color="var(--control)", x="share:Q")
    return finished([bars, zero], 24 * len(layers) + 10, frame=len(moments) - 1, shown=0)


def _rows(tables: list[pd.DataFrame], num_moments: int) -> list[dict[str, Any]]:
    """One row per layer and component, with its shares by set and moment: a twentieth of the bytes of a long table."""
    grids = [table.pivot_table(index=["layer", "component"], columns="frame", values="share") for table in tables]
    grids = [grid.reindex(index=grids[0].index, columns=range(num_moments)).fillna(0.0).round(2) for grid in grids]
    order = list(COMPONENTS)
    return [
        {
            "layer": int(layer),
            "name": COMPONENTS[component][0],
            "order": order.index(component),
            "shares": [grid.loc[(layer, component)].tolist() for grid in grids],
        }
        for layer, component in grids[0].index
    ]


def _held_out_sentence(tables: dict[str, dict[ModelStack, pd.DataFrame]]) -> list[str]:
    """The difference between the final shares on held-out and on training sentences."""
    if "held-out" not in tables:
        return []
    gaps = []
    for part, table in tables["train"].items():
        one, other = (
            each[each["frame"] == each["frame"].max()].set_index(["layer", "component"])["share"]
            for each in (table, tables["held-out"][part])
        )
        gaps.append(float((one - other).abs().max()))
    return [f"On held-out sentences no share of a layer and component differs by more than {max(gaps):.1f} points."]


def _final(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["frame"] == table["frame"].max()]


def _blocks_sentence(tables: dict[str, dict[ModelStack, pd.DataFrame]]) -> str:
    """The blocks' shares; training sentences select the layer, whose share is that on held-out ones."""
    texts = []
    for part, table in tables["train"].items():
        final = _final(table)
        layers = [_final(tables[name][part]).groupby("layer")["share"].sum() for name in tables if part in tables[name]]
        feed = float(final.loc[final["component"].isin(_FEED_FORWARD), "share"].sum())
        look = float(final.loc[final["component"].isin(["query", "key"]), "share"].sum())
        texts.append(f"{part.label}: feed-forward {feed:.0f}%, query and key {look:.1f}%, {most_in_layer(*layers)}")
    return f"Shares of the blocks' contribution: {'; '.join(texts)}."


def _words(steps: dict[ModelStack, pd.DataFrame], groups: pd.DataFrame) -> str:
    """Where feed-forward blocks contributed most and least, compared with their share of the weights."""
    found, sizes = [], []
    for part, rows in steps.items():
        inside = _in_blocks(rows)
        sums = inside.groupby("seed")["value"].sum()
        feed = inside[inside["component"].isin(_FEED_FORWARD)].groupby("seed")["value"].sum()
        found.append(Candidate(f"in {part.label}", percent_over_models((feed / sums).to_dict(), ANY_PERCENT)))
        weights = _in_blocks(of_part(groups, part))
        sizes.append(
            weights.loc[weights["component"].isin(_FEED_FORWARD), "parameters"].sum() / weights["parameters"].sum()
        )
    beside = f"its share of the blocks' weights is {percent_span(sizes)}"
    return extremes_words("the share of feed-forward in the blocks' contribution", found, "%", end=beside)


def _in_blocks(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the drawn components."""
    rows = rows.loc[rows["layer"] >= 0].assign(component=shown_component(rows))
    return rows.loc[rows["component"].isin(COMPONENTS)]


def _outside_sentence(groups: pd.DataFrame, models: ShownModels) -> str:
    """Embeddings, heads and norms outside the blocks, as shares of the whole loss change."""
    texts = []
    for series in models.present(groups):
        own = groups[groups["series"] == series.key]
        shares = own[own["layer"] < 0].groupby(["seed", "component"])["share"].sum().groupby("component").mean()
        largest = shares.sort_values(ascending=False).head(2)
        texts.append(f"{series.label} {listed([f'{name} {100 * value:.0f}%' for name, value in largest.items()])}")
    return f"Shares of the whole loss change outside the blocks: {'; '.join(texts)}."


BARS = DeclaredFigure(
    name="dynamics/components",
    id="allocation-bars",
    question="Which layers and components lowered the loss?",
    how_to_read=(
        "One bar per layer (0 is the lowest block), divided into components: how much that part of the weights "
        "contributed to the fall of the loss. These are raw sums: W1 and W2 hold four times as many weights as "
        "query, key, value or output. The data has the number of parameters of each group.",
        "Move the slider to replay training: bars grow from the start to the chosen update. Shares within a "
        "stack say nothing about the contribution of a stack as a whole; the sentence below does.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_STEPS.name, ALLOCATION_GROUPS.name),
    findings=("dynamics:V2", "dynamics:V5", "dynamics:V9"),
    template="replay.html.jinja",
    draw=_bars,
)
