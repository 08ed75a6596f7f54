"""Which attention heads lowered the loss: layer × head maps, normalised over the whole map."""

from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Panel
from infoflow.report._in_words import ANY_PERCENT, Candidate, extreme, percent_over_models, percent_span, sentence
from infoflow.report._numbers import number
from infoflow.report._samples import Estimate
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import color_if, one_at_a_time, tips
from infoflow.report.forms._grid import cells, squares

from ..measures import ALLOCATION_HEADS
from ._rows import LOSS_CHANGE, SETS, ModelStack, most_in_layer, of_part, parts_of


def _heads(by_set: dict[str, pd.DataFrame], models: ShownModels) -> Drawn:
    """One map per stack and kind of attention, one set of sentences at a time."""
    heads = by_set["train"]
    all_maps = {name: _maps(frame, models) for name, frame in by_set.items()}
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
        answer=[f"{'; '.join(_sentence(key, list(all_maps.values())) for key in maps)}."],
        words=_words([_rows_by_map(frame, models) for frame in by_set.values()]),
        caption=f"Means over {int(heads['seed'].nunique())} seeds, over the whole training. A head is its rows of the "
        "query, key and value projections with their biases and its columns of the output projection.",
        payload={"sets": [SETS[name] for name in by_set]},
    )


def _maps(heads: pd.DataFrame, models: ShownModels) -> dict[tuple[ModelStack, str], pd.DataFrame]:
    return {key: _map(rows) for key, rows in _rows_by_map(heads, models).items()}


def _rows_by_map(heads: pd.DataFrame, models: ShownModels) -> dict[tuple[ModelStack, str], pd.DataFrame]:
    """The heads of each stack and kind of attention."""
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

    Training sentences select it, and its share is that on held-out sentences, if there are any.
    """
    found, equal = [], []
    for key, rows in maps[0].items():
        part, kind = key
        name = f"{'cross-attention of ' if kind == 'cross' else ''}{part.label}"
        shares = [_shares_of_layers(each[key]) for each in maps if key in each]
        for layer, selects in shares[0].items():
            rank = selects.value if len(shares) > 1 else None
            found.append(Candidate(f"in layer {layer} of {name}", shares[-1][layer], rank))
        equal.append(1 / rows["layer"].nunique())
    most = extreme(found)
    if most is None:
        return ""
    told = most.told("%").replace(" %", "%")
    return sentence(
        f"the largest share of one layer's heads is {told}; with equal layers it would be {percent_span(equal)}"
    )


def _shares_of_layers(rows: pd.DataFrame) -> dict[int, Estimate]:
    """The share of each layer's heads in their map, over seeds."""
    shares = -rows["value"] / rows["value"].abs().groupby(rows["seed"]).transform("sum")
    return {
        int(str(layer)): percent_over_models(own.groupby(rows["seed"]).sum().to_dict(), ANY_PERCENT)
        for layer, own in shares.groupby(rows["layer"])
    }


def _sentence(key: tuple[ModelStack, str], maps: list[dict[tuple[ModelStack, str], pd.DataFrame]]) -> str:
    """The layer with most; training sentences, the first map, select it."""
    (part, kind), table = key, maps[0][key]
    layers = [each[key].groupby("layer")["map"].sum() for each in maps if key in each]
    name = f"{part.label}{', cross-attention' if kind == 'cross' else ''}"
    uneven = float(table.drop_duplicates("layer")["spread_in_layer"].mean())
    return (
        f"{name}: {most_in_layer(*layers)}; within a layer heads differ by "
        f"{number(uneven, 0)} percentage points (standard deviation); equal heads would have "
        f"{number(100 / table['head'].nunique(), 0)}% each"
    )


def _chart(tables: list[pd.DataFrame], limit: float) -> dict[str, Any]:
    """The map of one set of sentences at a time."""
    table = pd.concat([table.assign(set=number) for number, table in enumerate(tables)], ignore_index=True)
    layers = sorted(set(table["layer"]), reverse=True)
    table = table.assign(text=[f"{value:.1f}".replace("-", "−") for value in table["map"]], size=table["map"].abs())
    table = table[["set", "layer", "head", "map", "layer_share", "text", "size"]].round(3)
    marks = squares(
        table,
        cells("x", "head", "head", domain=True),
        cells("y", "layer", "layer", layers, domain=True),
        "size",
        ends=(0.0, limit),
        color=color_if("datum.map >= 0", "var(--above)", "var(--below)"),
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
        "between heads; the data has the spread over heads for each seed.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_HEADS.name,),
    findings=("dynamics:V8",),
    template="evaluated.html.jinja",
    draw=_heads,
)
