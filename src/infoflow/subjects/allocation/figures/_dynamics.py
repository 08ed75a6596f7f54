"""Training dynamics: which parts and heads of the models lowered the loss, when, and which raised it."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._curves import band_words, over_seeds, seed_bands
from infoflow.report._figure import DeclaredFigure, Drawn, Panel, Section, names_of
from infoflow.report._in_words import (
    ANY_PERCENT,
    Candidate,
    Estimate,
    extreme,
    listed,
    number,
    percent_over_models,
    percent_span,
    sentence,
)
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import HEIGHT, NAME, amount, lit, one_at_a_time, tips, with_field
from infoflow.report.forms._lines import lines, looks_of
from infoflow.report.forms._marks import draw
from infoflow.report.forms._rows import cells, signed_squares

from ..measures import (
    ALLOCATION_CORPORA,
    ALLOCATION_HEADS,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_RELIABILITY,
    ALLOCATION_SIMILARITY,
    ALLOCATION_WINDOWS,
)
from ._components import COMPONENT_SHARES, LOSS_CHANGE, SETS, ModelStack, by_set, of_part, of_sets, on_train, parts_of
from ._hurting import HISTOGRAM, HURTING
from ._similarity import CORPORA, OBJECTIVES

# Which attention heads lowered the loss: layer × head maps, normalised over the whole map.


def _heads(by_set: dict[str, pd.DataFrame], models: ModelSelection) -> Drawn:
    heads = by_set["train"]
    rows = {name: _rows_by_map(frame, models) for name, frame in by_set.items()}
    all_maps = {name: {key: _map(heads) for key, heads in each.items()} for name, each in rows.items()}
    maps = all_maps["train"]
    limit = max(float(table["map"].abs().max()) for each in all_maps.values() for table in each.values())
    return Drawn(
        data=pd.concat(
            [
                table.assign(series=part.series, stack=part.stack, kind=kind, set=name)
                for name, each in all_maps.items()
                for (part, kind), table in each.items()
            ],
            ignore_index=True,
        ),
        panels=[
            Panel(
                spec=_chart([each[part, kind] for each in all_maps.values()], limit),
                title=part.label + (" (cross-attention)" if kind == "cross" else ""),
            )
            for part, kind in maps
        ],
        words=_words(list(rows.values())),
        caption=f"{over_seeds(heads['seed'].nunique())}; sums over the whole training. A head consists of its rows of "
        "the query, key and value projections with their biases and its columns of the output projection.",
        payload={"sets": [SETS[name] for name in by_set]},
    )


def _rows_by_map(heads: pd.DataFrame, models: ModelSelection) -> dict[tuple[ModelStack, str], pd.DataFrame]:
    return {
        (part, kind): rows.loc[(rows["kind"] == kind) & (rows["head"] >= 0)]
        for part in parts_of(heads, models)
        for rows in [of_part(heads, part)]
        for kind in ("self", "cross")
        if kind in set(rows["kind"])
    }


def _map(rows: pd.DataFrame) -> pd.DataFrame:
    """Each head's share of the map's sum of absolute values, in percent: mean over seeds, and the spread."""
    scale = rows["value"].abs().groupby(rows["seed"]).transform("sum")
    within = rows["value"].abs().groupby([rows["seed"], rows["layer"]]).transform("sum")
    rows = rows.assign(map=-100 * rows["value"] / scale, layer_share=-100 * rows["value"] / within)
    spread = rows.groupby(["seed", "layer"])["layer_share"].std().groupby("layer").mean().rename("spread_in_layer")
    grouped: Any = rows.groupby(["layer", "head"])
    table = grouped.agg(map=("map", "mean"), layer_share=("layer_share", "mean"), seeds=("seed", "nunique"))
    return table.reset_index().merge(spread.reset_index(), on="layer")


def _words(maps: list[dict[tuple[ModelStack, str], pd.DataFrame]]) -> str:
    """The layer whose heads have the largest share of their map, compared with an equal share.

    The layer is selected on training sentences; its share is reported on held-out sentences, if there are any.
    """
    found, equal = [], []
    for key, rows in maps[0].items():
        part, kind = key
        if len(set(rows["layer"])) == 1:  # its only layer has all of the map
            continue
        name = f"{'cross-attention of ' if kind == 'cross' else ''}{part.label}"
        shares = [_shares_of_layers(each[key]) for each in maps if key in each]
        for layer, selects in shares[0].items():
            rank = selects.value if len(shares) > 1 else None
            found.append(Candidate(f"in layer {layer} of {name}", shares[-1][layer], rank))
        equal.append(1 / rows["layer"].nunique())
    most = extreme(found)
    if most is None:
        return ""
    stated = most.text("%").replace(" %", "%")
    return sentence(
        f"the largest share of one layer's heads is {stated}; with equal layers it would be {percent_span(equal)}"
    )


def _shares_of_layers(rows: pd.DataFrame) -> dict[int, Estimate]:
    shares = -rows["value"] / rows["value"].abs().groupby(rows["seed"]).transform("sum")
    return {
        int(str(layer)): percent_over_models(own.groupby(rows["seed"]).sum().to_dict(), ANY_PERCENT)
        for layer, own in shares.groupby(rows["layer"])
    }


def _chart(tables: list[pd.DataFrame], limit: float) -> dict[str, Any]:
    """The map of one set of sentences at a time."""
    table = pd.concat([table.assign(set=number) for number, table in enumerate(tables)], ignore_index=True)
    layers = sorted(set(table["layer"]), reverse=True)
    table = table.assign(text=[f"{value:.1f}".replace("-", "−") for value in table["map"]])
    table = table[["set", "layer", "head", "map", "layer_share", "text"]].round(3)
    marks = signed_squares(
        table,
        cells("x", "head", "head", domain=True),
        cells("y", "layer", "layer", layers, domain=True),
        "map",
        (-limit, limit),
        text="text:N" if len(set(table["head"])) <= 8 else None,
        size=9.5,
        tooltip=tips("layer:O", "head:O", "map:Q|% of the map|.2f", "layer_share:Q|% of its layer|.1f"),
    )
    return one_at_a_time(marks, 25 * len(layers) + 10)


HEADS = DeclaredFigure(
    name="dynamics/heads",
    id="allocation-heads",
    question="Which attention heads lowered the loss?",
    how_to_read=(
        "Each square is a head: layers upwards, heads across. The number is its loss change, in percent of the "
        "sum of absolute values over the whole map. Blue lowered the loss, orange raised it.",
        "Heads with the same number in different seeds are unrelated, so means over seeds blur differences "
        "between heads; the data contain the spread over heads for each seed.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_HEADS.name,),
    findings=("dynamics:V8",),
    template="evaluated.html.jinja",
    draw=_heads,
)


# Training dynamics: which parts of the models lowered the loss, when, and which raised it.


_BY_SET, _ON_TRAIN = ("windows", "steps", "heads"), ("groups", "hurting", "reliability")
_TABLES = tuple(f"allocation_{name}" for name in (*_BY_SET, *_ON_TRAIN))


def _loss(windows: dict[str, pd.DataFrame], reliability: pd.DataFrame, models: ModelSelection) -> Drawn:
    curves = {name: _curves(frame) for name, frame in windows.items()}
    table = curves["train"]
    series = models.present(table)
    residuals = reliability[reliability["statistic"] == "residual of the total"]
    points = int(table.groupby("series")["update"].nunique().max())
    return Drawn(
        data=of_sets(curves),
        panels=[Panel(spec=_loss_chart(list(curves.values()), series))],
        answer=_held_out_sentence(curves, series),
        words=_loss_words(residuals, series),
        caption=f"Loss on fixed sentences with frozen noise and without dropout. "
        f"{band_words(int(table['seeds'].max()), over='')}. {points} points.",
        payload={"sets": [SETS[name] for name in curves]},
    )


def _curves(windows: pd.DataFrame) -> pd.DataFrame:
    """Loss and its reconstruction after each window: mean over seeds and its interval."""
    windows = windows.sort_values(["series", "seed", "window"])
    runs = windows.groupby(["series", "seed"])
    rebuilt = runs["loss_start"].transform("first") + runs["allocated"].cumsum()
    starts = runs.head(1).assign(end=lambda f: f["begin"], loss_end=lambda f: f["loss_start"])
    points = pd.concat([windows.assign(rebuilt=rebuilt), starts.assign(rebuilt=starts["loss_start"])])
    keys = ["series", "end"]
    rebuilt = points.groupby(keys, sort=True)["rebuilt"].mean().reset_index()
    table = rebuilt.merge(seed_bands(points, keys, "loss_end", positive=True), on=keys)
    return table.rename(columns={"end": "update"})


def _loss_words(residuals: pd.DataFrame, series: list[Series]) -> str:
    """The error of the summed allocations under the rule in use, compared with that of the first-order rule."""
    used, first = [], []
    for one in series:
        own = residuals[residuals["series"] == one.key]
        for index, (rule, rows) in enumerate(own.groupby("rule", sort=False)):
            off = percent_over_models(rows.groupby("seed")["value"].mean().to_dict(), (0.0, math.inf))
            stated = Candidate(f"in {one.label}", off)
            used += [stated] if index == 0 else []
            first += [stated] if rule == "first-order" and index else []
    worst, plain = extreme(used), extreme(first, least=True)
    if worst is None:
        return ""
    first_order = f"; to first order, the error is at least {plain.text('%')}" if plain else ""
    most = "at most " if len(used) > 1 else ""
    said = f"the sum of all allocations misses the loss change by {most}{worst.text('%')}{first_order}"
    return sentence(said.replace(" %", "%"))


def _held_out_sentence(curves: dict[str, pd.DataFrame], series: list[Series]) -> list[str]:
    """How much of the loss reduction remains on held-out sentences."""
    if "held-out" not in curves:
        return []
    parts = []
    for one in series:
        falls = [
            float(own["value"].iloc[0] - own["value"].iloc[-1])
            for own in (curve[curve["series"] == one.key] for curve in curves.values())
        ]
        parts.append(f"{number(falls[1])} nats in {one.label} ({100 * falls[1] / falls[0]:.0f}%)")
    return [f"On held-out sentences the loss fell by {listed(parts)}; 100% is its fall on training sentences."]


def _loss_chart(tables: list[pd.DataFrame], series: list[Series]) -> dict[str, Any]:
    table = pd.concat([table.assign(set=number) for number, table in enumerate(tables)], ignore_index=True)
    values = table[["low", "high", "rebuilt"]].to_numpy(dtype=float)
    at = {
        "x": amount("x", "update", "updates", ticks=6, format="~s", zero=None),
        "y": amount("y", "value", "loss (nats per item)", [values.min(), values.max()], ticks=6, nice=True),
    }
    look = looks_of(series)
    tooltip = tips("series:N", "update:Q", "value:Q|loss|.3f", "rebuilt:Q|from allocations|.3f")
    dots = {"x": at["x"], "y": with_field(at["y"], "rebuilt"), "color": look["color"], "opacity": lit()}
    rebuilt = draw("point", table, dots, size=14, filled=True)
    ends = table.loc[table.groupby(["set", "series"])["update"].idxmax()]
    ends = ends.assign(name=ends["series"].map({one.key: one.label for one in series}))
    layers = [
        *lines(table, at, look, width=2.0, size=0, touch=200, tooltip=tooltip, over=[rebuilt]),
        draw("text", ends, NAME, at, align="right", dy=-8, text="name:N", color=look["color"], opacity=lit(1.0, 0.25)),
    ]
    return one_at_a_time(layers, HEIGHT)


LOSS = DeclaredFigure(
    name="dynamics/loss",
    id="allocation-loss",
    question="Do the parts add up to the loss?",
    how_to_read=(
        "Solid: the loss. Dots: the loss at the start plus all allocations so far. Where dots leave the line, "
        "the gradient changes more between two updates than the quadrature rule can follow.",
        "Losses of different objectives cannot be compared with each other.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_WINDOWS.name, ALLOCATION_RELIABILITY.name),
    findings=("dynamics:L6",),
    template="evaluated.html.jinja",
    draw=_loss,
)


DYNAMICS = Section(
    id="dynamics",
    title="Which parts of the model did the learning?",
    lead="Each update moves every parameter a little, and the loss falls or rises. Loss change allocation divides "
    "that change among the parameters, so that their shares add up to the change exactly.",
    names=names_of([COMPONENT_SHARES, LOSS, HEADS, HURTING, HISTOGRAM, OBJECTIVES, CORPORA]),
)


def dynamics_section(tables: ModelTables) -> Section | None:
    """The section, or None if no training was recorded."""
    models = tables.models
    if ALLOCATION_CORPORA.name in tables:
        found = CORPORA.of(tables[ALLOCATION_CORPORA.name], models)
        return replace(DYNAMICS, figures=[found], keys=list(models.series))
    if len(tables.some(_TABLES)) < len(_TABLES):
        return None
    windows, steps, heads = (by_set(tables[f"allocation_{name}"]) for name in _BY_SET)
    groups, hurting, reliability = (on_train(tables[f"allocation_{name}"]) for name in _ON_TRAIN)
    if windows["train"].empty:
        return None
    figures = [
        COMPONENT_SHARES.of(steps, groups, models),
        LOSS.of(windows, reliability, models),
        HEADS.of(heads, models),
        HURTING.of(hurting, reliability, models),
        *(HISTOGRAM.of(on_train(frame), models) for frame in tables.some([ALLOCATION_HISTOGRAM.name]).values()),
        *(OBJECTIVES.of(frame, models) for frame in tables.some([ALLOCATION_SIMILARITY.name]).values()),
    ]
    return replace(DYNAMICS, figures=[one for one in figures if one], keys=models.present(windows["train"]))
