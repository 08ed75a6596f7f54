"""Layer × component bars of the loss change, replayed over training."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ._dynamics_rows import COMPONENTS, Part, of_part, parts_of, shown_component
from ._figure import Figure, Panel
from ._language import Cast
from ._layer_chart import finished
from ._numbers import listed

_FRAMES = 24
_FEED_FORWARD = ("mlp_in", "mlp_out")


def bars_figure(steps: pd.DataFrame, groups: pd.DataFrame, cast: Cast) -> Figure:
    """Shares of each layer and component in the loss change inside the blocks of a stack, up to a chosen update."""
    parts = parts_of(groups, cast)
    tables = {part: _frames(of_part(steps, part)) for part in parts}
    frames = _moments(next(iter(tables.values())))
    reach = _reach(list(tables.values()))
    data = pd.concat([table.assign(series=p.series, stack=p.stack) for p, table in tables.items()], ignore_index=True)
    return Figure(
        id="allocation-bars",
        question="Which layers and components lowered the loss?",
        answer=[_blocks_sentence(tables), _outside_sentence(groups, cast)],
        panels=[Panel(spec=_chart(table, reach), title=part.label) for part, table in tables.items()],
        caption=f"Means over {int(groups['seed'].nunique())} seeds. 100% is what all blocks of a stack lowered the "
        "loss by until the end of training; to the left of 0 are parts that raised it.",
        how_to_read=[
            "One bar per layer (0 is the lowest block), cut into components: what that part of the weights contributed "
            "to the fall of the loss. Raw sums: W1 and W2 hold four times as many weights as query, key, value or "
            "output, and the data has each group's number of parameters.",
            "Move the slider to replay training: bars grow from the start to the chosen update. Shares within a stack "
            "say nothing about how much a stack as a whole contributed; the sentence below does.",
        ],
        method="loss-change",
        data=data,
        tables=("allocation_steps", "allocation_groups"),
        findings=("dynamics:V2", "dynamics:V5", "dynamics:V9"),
        template="replay.html.jinja",
        payload={
            "frames": [int(update) for update in frames],
            "legend": [{"label": label, "color": color} for label, color in _legend(data)],
        },
    )


def _legend(data: pd.DataFrame) -> list[tuple[str, str]]:
    present = set(data["component"])
    return [entry for name, entry in COMPONENTS.items() if name in present]


def _frames(steps: pd.DataFrame) -> pd.DataFrame:
    """Cumulative share of each layer and component, at about 24 updates; means over seeds."""
    steps = steps.loc[steps["layer"] >= 0].assign(component=shown_component(steps))
    steps = steps.loc[steps["component"].isin(COMPONENTS)]
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
    """From the longest bar to the left to the longest to the right, over all panels and moments."""
    ends = []
    for table in tables:
        for sign in (1, -1):
            bars = (sign * table["share"]).clip(lower=0).groupby([table["frame"], table["layer"]]).sum()
            ends.append(sign * float(bars.max()))
    return min(ends), max(ends)


def _chart(table: pd.DataFrame, reach: tuple[float, float]) -> dict[str, Any]:
    last = int(table["frame"].max())
    names = {name: label for name, (label, _) in COMPONENTS.items()}
    order = {name: index for index, name in enumerate(COMPONENTS)}
    table = table.assign(
        name=table["component"].map(names), order=table["component"].map(order), share=table["share"].round(3)
    )
    layers = sorted(set(table["layer"]), reverse=True)
    base = alt.Chart(table[["frame", "update", "layer", "name", "order", "share"]]).transform_filter(
        "datum.frame === frame"
    )
    labels = [label for label, _ in COMPONENTS.values()]
    bars = base.mark_bar(height={"band": 0.78}).encode(
        x=alt.X(
            "share:Q",
            title="% of the blocks' loss change",
            scale=alt.Scale(domain=list(reach), nice=True),
            stack="zero",
        ),
        y=alt.Y("layer:O", title="layer", sort=layers, axis=alt.Axis(labelPadding=6)),
        color=alt.Color(
            "name:N", scale=alt.Scale(domain=labels, range=[c for _, c in COMPONENTS.values()]), legend=None
        ),
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("layer:O"),
            alt.Tooltip("name:N", title="component"),
            alt.Tooltip("share:Q", title="% of the loss change", format=".2f"),
            alt.Tooltip("update:Q", title="until update", format=","),
        ],
    )
    zero = alt.Chart(pd.DataFrame([{"share": 0.0}])).mark_rule(color="var(--control)").encode(x="share:Q")
    chart = alt.layer(bars, zero).add_params(alt.param(name="frame", value=last))
    return finished(chart, 24 * len(layers) + 10)


def _blocks_sentence(tables: dict[Part, pd.DataFrame]) -> str:
    texts = []
    for part, table in tables.items():
        final = table[table["frame"] == table["frame"].max()]
        by_layer = final.groupby("layer")["share"].sum()
        feed = float(final.loc[final["component"].isin(_FEED_FORWARD), "share"].sum())
        look = float(final.loc[final["component"].isin(["query", "key"]), "share"].sum())
        texts.append(
            f"{part.label}: feed-forward {feed:.0f}%, query and key {look:.1f}%, most in layer {by_layer.idxmax()} "
            f"({by_layer.max():.0f}%)"
        )
    return f"Of what blocks contributed, {'; '.join(texts)}."


def _outside_sentence(groups: pd.DataFrame, cast: Cast) -> str:
    """Embeddings, heads and norms outside the blocks, as shares of the whole loss change."""
    texts = []
    for series in cast.present(groups):
        own = groups[groups["series"] == series.key]
        shares = own[own["layer"] < 0].groupby(["seed", "component"])["share"].sum().groupby("component").mean()
        largest = shares.sort_values(ascending=False).head(2)
        texts.append(f"{series.label} {listed([f'{name} {100 * value:.0f}%' for name, value in largest.items()])}")
    return f"Outside the blocks, of the whole loss change: {'; '.join(texts)}."
