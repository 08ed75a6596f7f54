"""Which components raise the loss, how often and when, and the sizes of single parameters' contributions."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._curves import over_seeds
from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import Candidate, count_text, extremes_words, percent_over_models, percent_span
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import CONTROL, by_key, finished, tips, with_field
from infoflow.report.forms._marks import channel, draw

from ..measures import (
    ALLOCATION_HISTOGRAM,
    ALLOCATION_HURTING,
    ALLOCATION_RELIABILITY,
    HURTING_COMPONENTS,
    hurting_counts,
    hurting_table,
)
from ._components import COMPONENTS, LOSS_CHANGE, ModelStack, in_blocks, joined, of_part, parts_of


def _hurting(hurting: pd.DataFrame, reliability: pd.DataFrame, models: ModelSelection) -> Drawn:
    counts, table = hurting_counts(hurting, by="series"), hurting_table(hurting, by="series")
    every, series = int(hurting["updates_per_chord"].max()), models.present(hurting)
    step = "steps" if every == 1 else f"stretches of {every} updates"
    agreement = float(reliability.loc[reliability["statistic"] == "sign agreement of parameters", "value"].mean())
    sure = f"Two halves of the examples agree on the sign for {agreement:.0%} of single parameters."
    return Drawn(
        data=counts,
        panels=[],
        answer=[sure] if agreement == agreement else [],
        words=_words(counts, hurting, series, step),
        caption=f"{over_seeds(int(hurting['seed'].nunique()))}; on training sentences, in "
        f"{count_text(float(hurting['chords'].max()))} {step}. Brackets are shares of all {step}.",
        payload={
            "columns": [one.label for one in series],
            "rows": {str(name): [row[one.key] for one in series] for name, row in table.iterrows()},
        },
    )


def _words(counts: pd.DataFrame, hurting: pd.DataFrame, series: list[Series], step: str) -> str:
    """The components that raise the loss most and least often, compared with these components' single parameters."""
    found = [
        Candidate(
            f"for {HURTING_COMPONENTS[str(component)]} in {one.label}",
            percent_over_models(own.set_index("seed")["share"].to_dict()),
        )
        for one in series
        for component, own in counts[counts["series"] == one.key].groupby("component", sort=False)
    ]
    single = hurting.loc[hurting["level"] == "parameter"].groupby("series")["hurt"].mean()
    of_single = f"for single parameters it is {known}" if (known := percent_span(single)) else ""
    return extremes_words(f"the share of {step} in which a component hurt", found, "%", end=of_single)


HURTING = DeclaredFigure(
    name="dynamics/hurting",
    id="allocation-hurting",
    question="Which components hurt, and how often?",
    how_to_read=(
        "How often a component, summed over all layers, raised the loss. Self-attention of the encoder, self-attention "
        "of the decoder and cross-attention are separate blocks, and the counts of all blocks are added up. “Largest "
        "rise” is the largest one of a single block in one step. A component may help in every step while half of its "
        "single parameters, the last row, hurt.",
        "It takes many examples to tell single parameters from noise: check how well the two halves agree.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_HURTING.name, ALLOCATION_RELIABILITY.name),
    findings=("dynamics:L1", "dynamics:V6", "dynamics:V7"),
    template="hurting.html.jinja",
    draw=_hurting,
)


# Sizes of single parameters' shares in the loss change: helping to the left, hurting to the right, by component.


_DEPTH = 6  # height of a row in decades of shares: from one in a million to all
_CUT = 0.002  # share of a component below which bins of the smallest changes are dropped
_ZERO = 0.5  # half the width of the bar for exactly 0, in decades
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _histogram(histogram: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    """Counts of single parameters by the size of their loss change, each side with the mean of it and its mirror image.

    None if no parameter of a block changed the loss, because the loss term does not depend on them.
    """
    every = {part: _shares(of_part(histogram, part)) for part in parts_of(histogram, models)}
    tables = {part: table for part, table in every.items() if set(table["side"]) - {"zero"}}
    if not tables:
        return None
    smallest, largest = _decades(list(tables.values()))
    counted = float(histogram.groupby("model")["count"].sum().mean())
    return Drawn(
        data=joined(tables),
        panels=[
            Panel(spec=_histogram_chart(table, smallest, largest), title=part.label) for part, table in tables.items()
        ],
        words=_sizes_words({part: of_part(histogram, part) for part in tables}),
        caption=f"On training sentences; {count_text(counted)} changes of single parameters in each of "
        f"{int(histogram['model'].nunique())} training runs, counted in {int(histogram['chords'].max())} steps spread "
        "over the training. Bar heights are logarithmic: a bar fills its row if all parameters of the component are in "
        "that bin, and half of its row for one parameter in a thousand.",
    )


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of each component's parameters and steps in each bin, and its mean with the mirrored bin."""
    counts: Any = in_blocks(rows).groupby(["component", "low", "high"], sort=False)["count"].sum()
    table = counts.reset_index()
    table["share"] = table["count"] / table.groupby("component")["count"].transform("sum")
    other = table[["component", "low", "high", "share"]].assign(low=-table["high"], high=-table["low"])
    table = table.merge(other.rename(columns={"share": "mirrored"}), how="outer", on=["component", "low", "high"])
    table = table.fillna({"count": 0, "share": 0.0, "mirrored": 0.0})
    table["expected"] = (table["share"] + table.pop("mirrored")) / 2
    table["side"] = np.where(table["high"] <= 0, "helped", "hurt")
    table.loc[(table["low"] == 0) & (table["high"] == 0), "side"] = "zero"
    return table.sort_values(["component", "low"], ignore_index=True)


def _decades(tables: list[pd.DataFrame]) -> tuple[int, int]:
    """Exponents of the smallest and largest drawn size, shared by all panels."""
    moved = pd.concat(tables).loc[lambda t: t["side"] != "zero"]
    low, high = _sizes(moved)
    seen = moved["share"] >= _CUT
    # One end of the outermost bins is 0 or infinite.
    smallest = low.where(low > 0, high / 10)[seen if seen.any() else slice(None)].min()
    largest = high.where(np.isfinite(high), 10 * low)[moved["share"] > 10.0**-_DEPTH].max()
    first = math.floor(math.log10(smallest) + 1e-6)
    return first, max(first + 1, math.ceil(math.log10(largest) - 1e-6))


def _sizes(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    ends = table[["low", "high"]].abs()
    return ends.min(axis=1), ends.max(axis=1)


def _drawn(table: pd.DataFrame, smallest: int, largest: int) -> pd.DataFrame:
    """Corners of the bars: decades from the middle across, rows upwards, heights by the logarithm of shares."""
    zero = table["side"] == "zero"
    low, high = _sizes(table)
    with np.errstate(divide="ignore"):
        near, far = (np.log10(end).clip(smallest, largest) - smallest + 1 for end in (low, high))
    table = table.assign(near=near.where(~zero, -_ZERO), far=far.where(~zero, _ZERO))
    table = table.loc[table["far"] - table["near"] > 1e-6]
    sign = np.where(table["side"] == "helped", -1.0, 1.0)
    names = [name for name in COMPONENTS if name in set(table["component"])]
    floor = table["component"].map({name: len(names) - 1 - row for row, name in enumerate(names)})
    return table.assign(
        name=table["component"].map({name: COMPONENTS[name][0] for name in names}),
        left=(sign * table["near"]).round(3),
        right=(sign * table["far"]).round(3),
        floor=floor,
        top=(floor + 0.9 * _height(table["share"])).round(3),
        expected_top=(floor + 0.9 * _height(table["expected"])).round(3),
        text=[
            "exactly 0" if largest == 0 else f"{least:.1e} to {largest:.1e} nats"
            for least, largest in zip(low.loc[table.index], high.loc[table.index], strict=True)
        ],
    )


def _height(share: pd.Series) -> pd.Series:
    return (1 + np.log10(share.clip(lower=10.0**-_DEPTH)) / _DEPTH).clip(0, 1)


def _histogram_chart(table: pd.DataFrame, smallest: int, largest: int) -> dict[str, Any]:
    drawn = _drawn(table, smallest, largest)
    rows = drawn.drop_duplicates("floor").set_index("floor")["name"]
    reach = largest - smallest + 1
    across = {"domain": [-reach, reach], "nice": False}
    x = channel("x", "left:Q", title="← helped · nats · hurt →", scale=across, axis=_axis(smallest, reach))
    names = json.dumps({str(floor): name for floor, name in rows.items()}, ensure_ascii=False)
    labels = {"values": sorted(rows.index), "labelExpr": f"{names}[datum.label]", "format": "d", "labelOffset": -9}
    y = channel("y", "floor:Q", title=None, scale={"domain": [-0.05, len(rows)], "nice": False}, axis=labels)
    fields = ["name", "side", "left", "right", "floor", "top", "share", "text", "count"]
    colors = ["var(--above)", "var(--below)", "var(--control)"]
    look = {
        "color": by_key("color", "side", ["helped", "hurt", "zero"], colors),
        "tooltip": tips(
            "name:N|component",
            "side:N|the loss change",
            "text:N|size",
            "share:Q|of the component|.3%",
            "count:Q|parameters and steps|,",
        ),
    }
    seen = (drawn["side"] != "zero") & (drawn["expected_top"] > drawn["floor"])
    shares = drawn.loc[drawn["share"] > 0, fields].round({"share": 7})
    expected = drawn.loc[seen, ["left", "right", "expected_top"]]
    layers = [
        draw("rect", shares, look, opacity=0.85, x=x, x2="right:Q", y=y, y2="top:Q"),
        draw("rule", expected, CONTROL, x=x, x2="right:Q", y=with_field(y, "expected_top")),
    ]
    return finished(layers, 44 * len(rows) + 20)


def _axis(smallest: int, reach: int) -> dict[str, Any]:
    """An axis with 0 in the middle and up to four powers of ten on each side; narrow panels label half of them."""
    places = list(range(reach, 0, -math.ceil(reach / 4)))
    places = places[: 4 if len(places) > 3 else 2]  # even: dropping every other label keeps 0 and the ends
    labels = {place: "10" + str(smallest + place - 1).translate(_SUPERSCRIPT) for place in places}
    by_place = {str(side * place): text for place, text in labels.items() for side in (-1, 1)} | {"0": "0"}
    expression = f"{json.dumps(by_place, ensure_ascii=False)}[toString(datum.value)]"
    return {"values": sorted(int(place) for place in by_place), "labelExpr": expression, "labelOverlap": "parity"}


def _sizes_words(rows: dict[ModelStack, pd.DataFrame]) -> str:
    """Share that helped among the parameters that changed the loss; random signs would give one half."""
    found = []
    for part, own in rows.items():
        own = in_blocks(own)
        moved = own.loc[(own["low"] != 0) | (own["high"] != 0)]
        all_moved = moved.groupby("seed")["count"].sum()
        helped = moved.loc[moved["high"] <= 0].groupby("seed")["count"].sum().reindex(all_moved.index, fill_value=0)
        found.append(Candidate(f"in {part.label}", percent_over_models((helped / all_moved).to_dict())))
    what = "the share that helped, among single-parameter changes that moved the loss,"
    return extremes_words(what, found, "%", end="with random signs it would be 50%")


HISTOGRAM = DeclaredFigure(
    name="dynamics/parameters",
    id="allocation-histogram",
    question="How many parameters help, and how much does a single one do?",
    how_to_read=(
        "Each row is a component over all layers. It is a histogram of how much a single parameter changed the loss in "
        "one step. Each bar is half a decade of sizes: changes on the left lowered the loss, changes on the right "
        "raised it, larger ones further out. The grey bar in the middle counts parameters that changed nothing.",
        "The dashed grey line is the mean of both sides, where bars would end if signs were random. Where blue "
        "stays below it and orange rises above, changes of that size hurt more often than they help.",
        "Long tails mean that few parameters do most of the work. The smallest sizes are left out.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_HISTOGRAM.name,),
    findings=("dynamics:L1", "dynamics:L4"),
    draw=_histogram,
)
