"""Rows of the allocation tables, and the loss change by component and layer, and over training."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.objectives import further_objectives
from infoflow.report._curves import band_words, seed_bands
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, PanelGroup
from infoflow.report._in_words import ANY_PERCENT, Candidate, extremes_words, listed, percent_over_models, percent_span
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import BASELINE, amount, by_key, lit, one_at_a_time, tips
from infoflow.report.forms._lines import control_lines, lines, names_above
from infoflow.report.forms._marks import Channel, Layer, draw, span
from infoflow.report.forms._over_time import layer_color, layer_shades
from infoflow.report.forms._rows import cells

from ..measures import ALLOCATION_GROUPS, ALLOCATION_STEPS

# Rows of the allocation tables as the report shows them: by model and stack, with component names.

LOSS_CHANGE = Method(
    id="loss-change",
    title="Loss change allocation",
    text="""
    <i>A</i><sub>i</sub> = Δ<sub>i</sub> ∫ ∂<sub>i</sub><i>L</i>(<i>θ</i> + <i>s</i>Δ) d<i>s</i> along the straight line
    between the weights before and after an update (or several), by the quadrature rule of the recording;
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
    """One stack of the models that share a line in charts."""

    series: str
    stack: str
    label: str


SETS = {"train": "training sentences", "held-out": "held-out sentences"}


def on_train(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows for training sentences and each model's first loss term."""
    return on_set(frame, "train")


def on_set(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows for one set of sentences and each model's first loss term.

    Models that read facts are left out, since they have other parts; the section on retrieval shows them.
    """
    frame = frame.loc[(frame["set"] == name) & ~frame["objective"].isin(further_objectives())]
    return frame.loc[frame["term"] == frame.groupby("model")["term"].transform("first")]


def by_set(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each set on which all models were evaluated, training sentences first."""
    sets = {name: on_set(frame, name) for name in SETS}
    models = set(sets["train"]["model"])
    return {name: rows for name, rows in sets.items() if set(rows["model"]) == models}


def parts_of(frame: pd.DataFrame, models: ModelSelection) -> list[ModelStack]:
    """The stacks with blocks, in reading order; a stack is named if its model has two stacks."""
    found = []
    for series in models.present(frame):
        own = frame[(frame["series"] == series.key) & (frame["layer"] >= 0)]
        stacks = sorted(set(own["stack"].astype(str)), reverse=True)
        found += [ModelStack(series.key, s, series.label + (f": {s}" if len(stacks) > 1 else "")) for s in stacks]
    return found


def of_part(frame: pd.DataFrame, part: ModelStack) -> pd.DataFrame:
    return frame.loc[(frame["series"] == part.series) & (frame["stack"] == part.stack)]


def in_blocks(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the drawn components; cross-attention becomes one component."""
    rows = rows.loc[rows["layer"] >= 0]
    cross = (rows["kind"] == "cross") & rows["component"].isin(["query", "key", "value", "output"])
    rows = rows.assign(component=rows["component"].astype(str).mask(cross, "cross"))
    return rows.loc[rows["component"].isin(COMPONENTS)]


def joined(tables: Mapping[ModelStack, pd.DataFrame]) -> pd.DataFrame:
    """Join the tables of all stacks, with the columns `series` and `stack`."""
    return pd.concat([t.assign(series=p.series, stack=p.stack) for p, t in tables.items()], ignore_index=True)


def of_sets(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the tables of all sets of sentences, with the column `set`."""
    return pd.concat([table.assign(set=name) for name, table in tables.items()], ignore_index=True)


# The loss change by component over layers, by layer over components, and by component over training.

_MOMENTS = 24
_BINS = 40
_FEED_FORWARD = ("mlp_in", "mlp_out")
_HEIGHT = 170
_PERCENT = "% of the blocks' loss change"
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


class _View(NamedTuple):
    id: str
    label: str
    note: str
    rows: Callable[["_Shares"], pd.DataFrame]
    draw: Callable[[pd.DataFrame, ModelSelection, ModelStack, tuple[float, float]], dict[str, Any]]


class _Shares(NamedTuple):
    """Percentages of the parts of one stack's blocks in their loss change, with intervals over seeds."""

    cells: pd.DataFrame  # layer, component, update: the sum up to this update
    components: pd.DataFrame  # component, update: the sum over layers
    raised: pd.DataFrame  # component, update: by how much its layers raised the loss since the preceding update

    @property
    def final(self) -> pd.DataFrame:
        return self.cells.loc[self.cells["update"] == self.cells["update"].max()].drop(columns="update")


def _components(steps: dict[str, pd.DataFrame], groups: pd.DataFrame, models: ModelSelection) -> Drawn:
    """Share of each layer and component in the loss change of a stack's blocks."""
    parts = parts_of(groups, models)
    shares = {
        name: {part: _shares(of_part(own, part), of_part(groups, part)) for part in parts}
        for name, own in steps.items()
    }
    final = {name: {part: each.final for part, each in own.items()} for name, own in shares.items()}
    present = set(in_blocks(groups)["component"])
    views = [_group(view, shares, models) for view in _VIEWS]
    tables = {name: joined({part: pd.concat(each) for part, each in own.items()}) for name, own in shares.items()}
    return Drawn(
        data=of_sets(tables).astype({"layer": "Int64"}),
        panels=views[0].panels,
        answer=[_outside_sentence(groups, models), *_held_out_sentence(final)],
        words=_words({part: of_part(steps["train"], part) for part in parts}, groups),
        caption=f"{band_words(int(groups['seed'].nunique()), over='')}. 100% is the total by which the blocks of a "
        "stack lowered the loss by the end of training; parts below 0 raised it. Grey, dashed: if every parameter had "
        "contributed the same.",
        payload={
            "metrics": views,
            "key": "allocation",
            "sets": [SETS[name] for name in steps],
            "legend": [
                {"label": label, "color": color} for name, (label, color) in COMPONENTS.items() if name in present
            ],
        },
    )


def component_look() -> dict[str, Any]:
    """Colour and mark of each component."""
    names, colors = zip(*COMPONENTS.values(), strict=True)
    return {"color": by_key("color", "name", names, colors), "shape": by_key("shape", "name", names, _SHAPES)}


def _shares(steps: pd.DataFrame, groups: pd.DataFrame) -> _Shares:
    """Cumulative shares at about 24 updates, with the share of the parameters as `control`."""
    steps, blocks = in_blocks(steps), in_blocks(groups)
    weights: Any = blocks.groupby(["layer", "component"])["parameters"].sum()
    weights = (100 * weights / weights.sum()).rename("control").reset_index()
    cells = _bands(steps, ["layer", "component"]).merge(weights, on=["layer", "component"])
    over_layers = weights.groupby("component", as_index=False)["control"].sum()
    return _Shares(cells, _bands(steps, ["component"]).merge(over_layers, on="component"), _raised(steps))


def _raised(steps: pd.DataFrame) -> pd.DataFrame:
    """How much each component raised the loss in each part of training: the sum of its positive allocations.

    A layer's component raises the loss in a window if its allocation there is positive. The result is in percent of the
    fall of the loss due to all blocks.
    """
    steps = in_blocks(steps)
    sums: Any = steps.groupby(["seed", "end", "layer", "component"])["value"].sum()
    fall = sums.groupby("seed").sum().abs().replace(0.0, 1.0)
    ends = np.unique(steps["end"])
    bins = _some(ends, _BINS)
    raised = (100 * sums.clip(lower=0) / fall).rename("value").reset_index()
    raised["update"] = bins[np.searchsorted(bins, raised["end"])]
    raised = raised.groupby(["seed", "component", "update"], as_index=False)["value"].sum()
    table = seed_bands(raised, ["component", "update"])
    table["low"] = table["low"].clip(lower=0.0)
    return table.assign(
        control=np.nan, part="raised", name=[COMPONENTS[component][0] for component in table["component"]]
    )


def _bands(steps: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Cumulative shares of the parts named by `by` at about 24 updates: means over seeds with their intervals."""
    sums: Any = steps.groupby(["seed", "end", *by])["value"].sum()
    grid = sums.unstack(by).fillna(0.0).sort_index().groupby("seed").cumsum()
    if len(by) == 1:
        grid.columns = pd.MultiIndex.from_arrays([grid.columns], names=by)
    total = grid.groupby("seed").last().sum(axis=1).abs().replace(0.0, 1.0)
    grid = grid.div(-total / 100, axis=0, level="seed")
    ends = np.unique(grid.index.get_level_values("end"))
    grid = grid.loc[grid.index.get_level_values("end").isin(_some(ends, _MOMENTS))]
    table = grid.stack(by, future_stack=True).rename("value").reset_index().dropna(subset="value")
    table = seed_bands(table, [*by, "end"]).rename(columns={"end": "update"})
    return table.assign(part="sum", name=[COMPONENTS[component][0] for component in table["component"]])


def _some(ends: np.ndarray, most: int) -> np.ndarray:
    """Choose at most `most` of the updates, including the first and the last."""
    return ends[np.unique(np.linspace(0, len(ends) - 1, min(most, len(ends))).round().astype(int))]


def _group(view: _View, shares: dict[str, dict[ModelStack, _Shares]], models: ModelSelection) -> PanelGroup:
    """The panels of one view, on one scale; `set` numbers the sentences."""
    rows = {
        part: pd.concat(
            [view.rows(own[part]).assign(set=number) for number, own in enumerate(shares.values())], ignore_index=True
        )
        for part in shares["train"]
    }
    ends = span(0.0, *(table[["value", "low", "high", "control"]] for table in rows.values()), margin=0.04)
    panels = [Panel(spec=view.draw(table, models, part, ends), title=part.label) for part, table in rows.items()]
    return PanelGroup(id=view.id, label=view.label, note=view.note, scale=("", ""), panels=panels)


def _over_layers(
    rows: pd.DataFrame, models: ModelSelection, part: ModelStack, ends: tuple[float, float]
) -> dict[str, Any]:
    at = {"x": cells("x", "layer", "layer", domain=True), "y": amount("y", "value", _PERCENT, ends, ticks=6)}
    tooltip = tips("name:N|component", "layer:O", f"value:Q|{_PERCENT}|.1f", "control:Q|% of the weights|.1f")
    return _lines(rows, at, component_look(), models[part.series], "name", tooltip=tooltip)


def _over_components(
    rows: pd.DataFrame, models: ModelSelection, part: ModelStack, ends: tuple[float, float]
) -> dict[str, Any]:
    names = [label for label, _ in COMPONENTS.values() if label in set(rows["name"])]
    x = cells("x", "name", None, names, domain=True, labelAngle=-40)
    at = {"x": x, "y": amount("y", "value", _PERCENT, ends, ticks=6)}
    layers = sorted({int(layer) for layer in rows["layer"]})
    tooltip = tips("layer:O", "name:N|component", f"value:Q|{_PERCENT}|.1f", "control:Q|% of the weights|.1f")
    legend = names_above(
        [("●", f"layer {layer}", color) for layer, color in zip(layers, layer_shades(layers), strict=True)]
    )
    return _lines(
        rows, at, {"color": layer_color(layers)}, models[part.series], "layer", always=[legend], tooltip=tooltip
    )


def _over_training(
    rows: pd.DataFrame, models: ModelSelection, part: ModelStack, ends: tuple[float, float]
) -> dict[str, Any]:
    first, last = (float(rows["update"].agg(end)) for end in ("min", "max"))
    x = amount("x", "update", "updates", [first, max(last, first + 1)], type="log", zero=None, format="~s", ticks=4)
    tooltip = tips("name:N|component", "update:Q|until update|,", f"value:Q|{_PERCENT}|.1f")
    at = {"x": x, "y": amount("y", "value", _PERCENT, ends, ticks=6)}
    return _lines(rows, at, component_look(), models[part.series], "name", size=0, touch=60, tooltip=tooltip)


def _lines(
    rows: pd.DataFrame,
    at: dict[str, Any],
    look: dict[str, Any],
    series: Series,
    by: str,
    *,
    always: Sequence[Layer] = (),
    size: int = 26,
    touch: int = 0,
    tooltip: list[Channel],
) -> dict[str, Any]:
    """Lines of one set of sentences at a time, drawn over the lines for equal parameters."""
    places = [name for name in ("layer", "update") if name in rows]
    shown = rows[["set", "name", *places, "value", "low", "high", "control", "seeds"]].round(2)
    sets = pd.DataFrame({"set": sorted(set(rows["set"]))}).assign(value=0.0)
    equal = shown.drop(columns="value").rename(columns={"control": "value"})
    layers = [
        draw("rule", sets, BASELINE, y=at["y"]),
        *control_lines(equal, at, band=0, by=by),
        *lines(
            shown, at, look, light=partial(lit, of=series), band=0.1, width=1.8, size=size, touch=touch, tooltip=tooltip
        ),
    ]
    return one_at_a_time(layers, _HEIGHT, always)


_VIEWS = (
    _View(
        "over-layers", "components, over layers", "Each line is a component.", lambda shares: shares.final, _over_layers
    ),
    _View(
        "over-components",
        "layers, over components",
        "Each line is a layer, from the lowest (pale) to the top (dark).",
        lambda shares: shares.final,
        _over_components,
    ),
    _View(
        "over-training",
        "components, over training",
        "Each line is a component over all layers: the sum from the start to this update.",
        lambda shares: shares.components,
        _over_training,
    ),
    _View(
        "raised",
        "what raised the loss",
        "Only the positive part: by how much the layers of a component raised the loss in each stretch of training.",
        lambda shares: shares.raised,
        _over_training,
    ),
)


def _held_out_sentence(final: dict[str, dict[ModelStack, pd.DataFrame]]) -> list[str]:
    """The difference between the shares on held-out and on training sentences."""
    if "held-out" not in final:
        return []
    gaps = [
        (one.set_index(_CELL)["value"] - final["held-out"][part].set_index(_CELL)["value"]).abs().max()
        for part, one in final["train"].items()
    ]
    return [f"On held-out sentences no share of a layer and component differs by more than {max(gaps):.1f} points."]


_CELL = ["layer", "component"]


def _words(steps: dict[ModelStack, pd.DataFrame], groups: pd.DataFrame) -> str:
    """Where feed-forward blocks contributed most and least, compared with their share of the parameters."""
    found, sizes = [], []
    for part, rows in steps.items():
        inside = in_blocks(rows)
        sums = inside.groupby("seed")["value"].sum()
        feed = inside[inside["component"].isin(_FEED_FORWARD)].groupby("seed")["value"].sum()
        found.append(Candidate(f"in {part.label}", percent_over_models((feed / sums).to_dict(), ANY_PERCENT)))
        weights: Any = in_blocks(of_part(groups, part)).groupby("component")["parameters"].sum()
        sizes.append(weights.reindex(list(_FEED_FORWARD)).sum() / weights.sum())
    of_weights = f"its share of the blocks' weights is {percent_span(sizes)}"
    return extremes_words("the share of feed-forward in the blocks' contribution", found, "%", end=of_weights)


def _outside_sentence(groups: pd.DataFrame, models: ModelSelection) -> str:
    """Embeddings, heads and norms outside the blocks, as shares of the whole loss change."""
    texts = []
    for series in models.present(groups):
        own = groups[groups["series"] == series.key]
        shares = own[own["layer"] < 0].groupby(["seed", "component"])["share"].sum().groupby("component").mean()
        largest = shares.sort_values(ascending=False).head(2)
        texts.append(f"{series.label} {listed([f'{name} {100 * value:.0f}%' for name, value in largest.items()])}")
    return f"Shares of the whole loss change outside the blocks: {'; '.join(texts)}."


COMPONENT_SHARES = DeclaredFigure(
    name="dynamics/components",
    id="allocation-components",
    question="Which layers and components lowered the loss?",
    how_to_read=(
        "Choose what is added up. Each point is how much that part of the weights contributed to the fall of the "
        "loss. These are raw sums: W1 and W2 hold four times as many weights as query, key, value or output, which "
        "the dashed grey lines show. The data contain the number of parameters of each group.",
        "Over training, lines grow from the start to the chosen update; a line that falls raised the loss meanwhile. "
        "Shares within a stack say nothing about the contribution of the whole stack; for that, see the sentence "
        "below.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_STEPS.name, ALLOCATION_GROUPS.name),
    findings=("dynamics:V2", "dynamics:V5", "dynamics:V9"),
    template="keyed.html.jinja",
    draw=_components,
)
