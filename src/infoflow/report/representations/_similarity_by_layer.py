"""How similar the spaces of two models are at each depth, by RSA and by PWCCA."""

import pandas as pd

from infoflow.representations import SPACE_SIMILARITY

from .._curves import interval_note, sample_note
from .._figure import Panel, ReportFigure
from .._in_words import Candidate, extremes_words, number
from .._layer_figure import stacked
from .._model_selection import JOIN, ModelSelection
from .._theme import Series
from ..forms._layer_chart import LayerChart
from ..forms._lines import COSINE, SHARE
from ._similarity_rows import CONTROL, METHOD, Compared, PairOfLines, SimilarityMeasure, equal_depth, estimate_of

_BY_LAYER = {"rsa": COSINE, "pwcca": SHARE}
"""Measures that are drawn by layer, with their bounds."""


def by_layer_figure(compared: Compared, models: ModelSelection) -> ReportFigure | None:
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
    end = f"two untrained models have {number(tops.loc[CONTROL, 'value'], 2)}" if CONTROL in tops.index else ""
    return extremes_words(f"{metric.label} at the top layer", found, end=end)
