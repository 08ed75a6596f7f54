"""How similar the spaces of two models are: each layer of one against each layer of the other, for every measure."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.representations import SPACE_SIMILARITY

from .._curves import interval_note, sample_note
from .._figure import Panel, PanelGroup, ReportFigure, Section
from .._in_words import Candidate, estimate_text, extreme, extremes_words, listed, number, sentence
from .._layer_figure import stacked
from .._model_selection import JOIN, ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._chart import finished, tips
from ..forms._layer_chart import LayerChart
from ..forms._lines import COSINE, SHARE
from ..forms._marks import filtered
from ..forms._rows import cells, frames, squares
from ._similarity_rows import (
    CONTROL,
    LAYERS,
    METHOD,
    METRICS,
    Compared,
    PairOfLines,
    SimilarityMeasure,
    equal_depth,
    estimate_of,
    excess_at_equal_depth,
    pairs_of_lines,
    similarity_rows,
)

_MOST_LABELLED = 9  # layers across; with more, numbers do not fit
_MOST_PAIRS = 15  # models across; with more, only each model's nearest one is shown
_BY_LAYER = {"rsa": COSINE, "pwcca": SHARE}
"""Measures that are drawn by layer, with their bounds."""


SIMILARITY = Section(
    id="similarity",
    short="Similar",
    title="How similar are the spaces?",
    lead="Two models read the same words. Here each layer of one is compared with every layer of the other: is "
    "there a layer that holds its words in the same arrangement, and is it at the same depth?",
    names={
        "similarity-by-layer": "representations/similarity-by-layer",
        "space-similarity": "representations/space-similarity",
    },
    folded=("space-similarity",),
)


def similarity_section(tables: ModelTables) -> Section | None:
    """The section on how similar spaces are, or None if no two models were compared.

    Untrained models get a map of their own, not a line.
    """
    if SPACE_SIMILARITY.name not in tables:
        return None
    models = tables.models
    every = similarity_rows(tables[SPACE_SIMILARITY.name], models)
    rows = every[every["value"].notna()]
    unknown = [metric.label for metric in METRICS if metric.id in set(every["metric"]) - set(rows["metric"])]
    lines = pairs_of_lines(rows, models)
    if all(line.key == CONTROL for line in lines):
        return None
    nearest = nearest_pairs(rows, lines)
    left_out = len(lines) - len(nearest)
    rows = rows[rows["line"].isin([line.key for line in nearest])]
    present = [metric for metric in METRICS if metric.id in set(rows["metric"])]
    if any(metric.id == "cka_debiased" for metric in present):
        present = [metric for metric in present if metric.id != "cka"]
    compared = Compared(rows, nearest, present)
    by_layer = _by_layer_figure(compared, models)
    maps = _maps_figure(compared, left_out, unknown)
    return replace(SIMILARITY, figures=[by_layer, maps] if by_layer else [maps])


def nearest_pairs(rows: pd.DataFrame, lines: list[PairOfLines]) -> list[PairOfLines]:
    """All pairs or, if there are many, each model with its most similar one, by the first measure at equal depth.

    Maps of all 136 pairs of 17 objectives would take nine megabytes, too many to look at.
    """
    across = [line for line in lines if not line.same and line.key != CONTROL]
    if len(across) <= _MOST_PAIRS:
        return lines
    metric = next(metric for metric in METRICS if metric.id in set(rows["metric"]))
    own = rows[rows["metric"] == metric.id]
    own = own[equal_depth(own)]
    likeness = own.groupby("line")["value"].mean() * (-1 if metric.is_distance else 1)
    names = dict.fromkeys(name for line in across for name in (line.up, line.across))
    nearest = {
        max((line for line in across if name in (line.up, line.across)), key=lambda line: likeness[line.key]).key
        for name in names
    }
    return [line for line in lines if line not in across or line.key in nearest]


def _by_layer_figure(compared: Compared, models: ModelSelection) -> ReportFigure | None:
    """Layers of equal depth by RSA and PWCCA, one line per pair of models; None if neither was measured."""
    across = [line for line in compared.lines if not line.same and line.key != CONTROL]
    metrics = [metric for metric in compared.metrics if metric.id in _BY_LAYER]
    if not across or not metrics:
        return None
    tables = {metric: _at_equal_depth(compared.tables[metric.id], across) for metric in metrics}
    pairs = [(line, [models[key] for key in line.key.split(JOIN)]) for line in across]
    series = [Series(key=line.key, label=line.title, slot=a.slot, second_slot=b.slot) for line, (a, b) in pairs]
    charts = {
        metric.label: LayerChart(
            table=table,
            series=series,
            y_title=f"{metric.label} of layers at equal depth",
            baseline_name="shuffled words",
            bounds=_BY_LAYER[metric.id],
        )
        for metric, table in tables.items()
    }
    data = stacked({metric.id: table for metric, table in tables.items()}, "metric")
    return ReportFigure(
        id="similarity-by-layer",
        question="Do models grow apart with depth?",
        words=" ".join(filter(None, (_ends(metric, table, across) for metric, table in tables.items()))),
        panels=[Panel.of(chart, title) for title, chart in charts.items()],
        caption=f"{interval_note(data).replace('seeds', 'pairs of models')} Each panel has its own scale."
        + sample_note(compared.rows),
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: how alike the spaces of two models are at this "
            "depth; 1 means the same. A line between two models has both colours.",
            "RSA asks whether the same words are near to or far from each other in both models; PWCCA, whether one "
            "space can be mapped linearly onto the other.",
            "Bands are 95% intervals. The dashed grey line compares two untrained models, the dotted one shuffles the "
            "words of one model. Untrained models of one seed have the same initial weights: they are alike by "
            "construction.",
        ],
        method=METHOD,
        data=data,
        tables=(SPACE_SIMILARITY.name,),
    )


def _at_equal_depth(tables: dict[str, pd.DataFrame], across: list[PairOfLines]) -> pd.DataFrame:
    """Rows for a layer chart: pairs of lines, the untrained pair, and shuffled words."""
    parts = [
        own[equal_depth(own)].assign(series=key, group="untrained" if key == CONTROL else "trained")
        for key in [*(line.key for line in across), CONTROL]
        if (own := tables.get(key)) is not None
    ]
    rows = pd.concat(parts, ignore_index=True).rename(columns={"layer_b": "layer", "pairs": "seeds"})
    shuffled = rows[rows["group"] == "trained"].groupby("layer", as_index=False)["baseline"].mean()
    shuffled = shuffled.rename(columns={"baseline": "value"}).assign(series="", group="baseline")
    return pd.concat([rows.drop(columns=["layer_a", "baseline"]), shuffled], ignore_index=True)


def _ends(metric: SimilarityMeasure, table: pd.DataFrame, across: list[PairOfLines]) -> str:
    """The most and the least similar pair at the top, and the untrained models there."""
    tops = table.loc[table[table["group"] != "baseline"].groupby("series")["layer"].idxmax()].set_index("series")
    found = [
        Candidate(f"for {line.title}", estimate_of(tops.loc[line.key].rename({"seeds": "pairs"})))
        for line in across
        if line.key in tops.index
    ]
    end = f"for two untrained models it is {number(tops.loc[CONTROL, 'value'], 2)}" if CONTROL in tops.index else ""
    return extremes_words(f"{metric.label} at the top layer", found, end=end)


def _maps_figure(compared: Compared, left_out: int, unknown: list[str]) -> ReportFigure:
    rows, lines, present, tables = compared.rows, compared.lines, compared.metrics, compared.tables
    first, groups = present[0], [_group(metric, tables[metric.id], lines) for metric in present]
    drawn = [table.assign(metric=metric, models=key) for metric, own in tables.items() for key, table in own.items()]
    data = pd.concat(drawn, ignore_index=True)
    too_few = f" No {listed(unknown)}: the words are too few for the width of the vectors." if unknown else ""
    return ReportFigure(
        id="space-similarity",
        question="Which layers of two models are most alike?",
        answer=[
            *_depth_sentence(
                rows[rows["metric"] == first.id],
                first,
                [line for line in lines if line.key in tables[first.id] and line.key != CONTROL],
            ),
            *_agreement(tables, present, lines),
        ],
        words=_words(first, tables[first.id], lines),
        panels=groups[0].panels,
        caption=_caption(data, left_out) + too_few + sample_note(rows),
        how_to_read=[
            "Each square is a pair of layers: one model's upwards, the other's across; 0 = embeddings. The stronger "
            "the colour, the more similar; the palest colour is the similarity of the same layers with the words of "
            "one model shuffled. All maps of a measure have one scale.",
            "In every column the framed square is the most similar layer. Frames along the diagonal: both models do "
            "the same at the same depth; frames in one row: one layer resembles all layers of the other model.",
            "Choose a measure above the maps. Measures are invariant to different changes: Procrustes and CKA to "
            "rotations, PWCCA to any linear map, RSA to whatever keeps the order of the distances.",
        ],
        method=METHOD,
        data=data,
        tables=(SPACE_SIMILARITY.name,),
        template="metrics.html.jinja",
        payload={"metrics": groups},
    )


def _group(metric: SimilarityMeasure, tables: dict[str, pd.DataFrame], lines: list[PairOfLines]) -> PanelGroup:
    everything = pd.concat(tables.values())
    baseline, values = float(everything["baseline"].mean()), everything["value"]
    span = (baseline, float(values.min() if metric.is_distance else values.max()))
    panels = [
        Panel(spec=_map(tables[line.key], line, metric, span), title=line.title) for line in lines if line.key in tables
    ]
    unit = " radians" if metric.is_distance else ""
    scale = (f"shuffled words {number(span[0], 2)}", f"{number(span[1], 2)}{unit}")
    return PanelGroup(
        id=metric.id, label=metric.label, note=f"{metric.label}: {metric.asks}?", scale=scale, panels=panels
    )


def _words(metric: SimilarityMeasure, tables: dict[str, pd.DataFrame], lines: list[PairOfLines]) -> str:
    """The two most similar layers of different models, and those of the control."""
    ranked = {key: table.sort_values("value", ascending=metric.is_distance) for key, table in tables.items()}
    tops = {line.key: (line, ranked[line.key].iloc[0]) for line in lines if line.key in ranked}
    across = [
        Candidate(f"layer {top['layer_a']} of {line.up} and layer {top['layer_b']} of {line.across}", estimate_of(top))
        for line, top in tops.values()
        if not line.same and line.key != CONTROL
    ]
    best = extreme(across, least=metric.is_distance)
    if best is None:
        return ""
    said = f"by {metric.label}, {best.candidate.name} are most alike, {estimate_text(best.candidate.estimate)}"
    if best.alike:
        others = "another pair" if len(best.alike) == 1 else f"{len(best.alike)} other pairs"
        said += f", not clearly more than those of {others}"
    control = f"; two untrained models reach {tops[CONTROL][1]['shown']}" if CONTROL in tops else ""
    return sentence(f"{said}{control}")


def _depth_sentence(rows: pd.DataFrame, metric: SimilarityMeasure, lines: list[PairOfLines]) -> list[str]:
    excesses = {line.title: excess_at_equal_depth(rows[rows["line"] == line.key]) for line in lines}
    excesses = {title: each.negated() if metric.is_distance else each for title, each in excesses.items()}
    clear = sorted((title for title in excesses if excesses[title].sign > 0), key=lambda title: excesses[title].value)
    unclear = [title for title in excesses if title not in clear]
    if not clear:
        return [f"Layers of equal depth are not clearly more alike than others in {listed(unclear)}."]
    least, most = (f"{estimate_text(excesses[title])} in {title}" for title in (clear[0], clear[-1]))
    amount = least if len(clear) == 1 else f"{least} to {most}"
    where = "all pairs" if not unclear else f"{len(clear)} of {len(excesses)} pairs"
    exceptions = f", but not clearly so in {listed(unclear)}" if unclear else ""
    return [f"Layers of equal depth are more alike than others in {where}, by {amount}{exceptions}."]


def _agreement(
    tables: dict[str, dict[str, pd.DataFrame]], metrics: list[SimilarityMeasure], lines: list[PairOfLines]
) -> list[str]:
    """How many best matches are at equal depth for each measure, over the trained models."""
    counts, total = [], 0
    for metric in metrics:
        own = [tables[metric.id][line.key] for line in lines if line.key != CONTROL and line.key in tables[metric.id]]
        hits = [equal_depth(table)[_best(table, metric).index] for table in own]
        total = sum(map(len, hits))
        counts.append(f"{sum(int(hit.sum()) for hit in hits)} by {metric.label}")
    if len(counts) < 2:
        return []
    return [f"Of {total} columns, the best match lies at equal depth in {listed(counts)}."]


def _caption(data: pd.DataFrame, left_out: int) -> str:
    pairs = int(data["pairs"].max())
    fewest, most = int(data["count"].min()), int(data["count"].max())
    means = f"Means over up to {pairs} pairs of models; intervals" if pairs > 1 else "Intervals"
    kind = "over seeds and sentences" if pairs > 1 else "over sentences"
    few = f" (RSA: {fewest:,})" if fewest < most else ""
    shown = f" Shown: each model and the one most like it; {left_out} other pairs are in the table." if left_out else ""
    return f"{means} are 95%, {kind}, in tooltips and in the data; {most:,} words{few}.{shown}"


def _best(table: pd.DataFrame, metric: SimilarityMeasure) -> pd.DataFrame:
    """The most similar cell of each column."""
    by_column = table.groupby("layer_b")["value"]
    return table.loc[by_column.idxmin() if metric.is_distance else by_column.idxmax()]


def _map(
    table: pd.DataFrame, line: PairOfLines, metric: SimilarityMeasure, span: tuple[float, float]
) -> dict[str, Any]:
    """The map of one pair of lines; colours go from chance, nearly blank, to the maximum over all maps."""
    up, across = (sorted(table[name].unique().tolist()) for name in LAYERS)
    drawn = table[[*LAYERS, "shown"]].assign(
        value=table["value"].round(4),
        baseline=table["baseline"].round(3),
        best=table.index.isin(_best(table, metric).index),
    )
    # No axis values: with them, Vega drops the label 0 at some widths.
    x = cells("x", "layer_b", f"layer of {line.across}")
    y = cells("y", "layer_a", f"layer of {line.up}", up[::-1])
    layers = squares(
        drawn,
        x,
        y,
        "value",
        ends=span,
        color="var(--control)" if line.key == CONTROL else "var(--heat-2)",
        text="value:Q" if len(across) <= _MOST_LABELLED else None,
        format=".2f",
        tooltip=tips(
            f"layer_a:O|layer of {line.up}",
            f"layer_b:O|layer of {line.across}",
            f"shown:N|{metric.label}",
            "baseline:Q|shuffled words",
        ),
    )
    if line.key != CONTROL:
        layers[1:1] = frames(filtered(drawn, "datum.best"), x, y)
    return finished(layers, max(26 * len(up), 60))
