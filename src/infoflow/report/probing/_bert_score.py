"""Pairs of texts scored by each layer: how alike they are beside random pairs, and where people would agree."""

import pandas as pd

from .._curves import curves, interval_note
from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, number
from .._samples import Samples
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ._methods import BERT_SCORES
from ._rows import alike_text, any_trained, best_layer, curves_with, of, sentence_start

_CORRELATION = (-1.0, 1.0)
_SCORES = {"f": "F", "precision": "precision", "recall": "recall"}


def bert_score_figure(means: pd.DataFrame, agreement: pd.DataFrame | None, models: ShownModels) -> ReportFigure | None:
    """A panel of the correlation with people where they scored the pairs, and one for each score; None without a
    trained model."""
    if not any_trained(means):
        return None
    panels, data = [], []
    human = None if agreement is None else of(agreement, score="f", labels="human")
    if agreement is not None and human is not None and any_trained(human):
        table = curves_with(
            human.assign(baseline=float("nan")), {"permuted scores": of(agreement, score="f", labels="permuted")}
        )
        how = {"y_title": "correlation with people", "bounds": _CORRELATION, "controls": ("permuted scores",)}
        chart = LayerChart(table=table, series=models.present(table[table["group"] == "trained"]), **how)
        panels.append(Panel.of(chart, f"agreement of F with people ({_count(human)} pairs)"))
        data.append(table.assign(score="f", shows="correlation"))
    rescaled = bool(means["rescaled"].any())
    for name, label in _SCORES.items():
        table = curves(of(means, score=name))
        y_title = "share of the way to equal texts" if rescaled else "cosine"
        chart = LayerChart(
            table=table,
            series=models.present(table[table["group"] == "trained"]),
            y_title=y_title,
            baseline_name="random pairs",
        )
        panels.append(Panel.of(chart, f"mean {label}"))
        data.append(table.assign(score=name, shows="mean"))
    whole = pd.concat(data, ignore_index=True)
    return ReportFigure(
        id="bert-score",
        question="Which layer tells best how alike two texts are?",
        answer=_sentences(of(means, score="f"), human, models),
        panels=panels,
        caption=f"{_intervals(whole)} {_asked(means)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: how well the scores of a layer follow those of "
            "people (Pearson's correlation over pairs), and the mean scores themselves.",
            "The dotted line of mean scores is that of random pairs: only what lies above it says that two texts are "
            "alike. Where a layer's vectors all point one way, both lines are high.",
            "A best layer at the very top would be surprising for an encoder: published ones lie below it.",
        ],
        method=BERT_SCORES,
        data=whole,
        tables=("bert_score_layers", *(("bert_score",) if human is not None else ())),
        findings=("probing:P-5",),
        payload={"apart": True},
    )


def _count(rows: pd.DataFrame) -> str:
    return f"{int(rows['count'].max()):,}"


def _intervals(data: pd.DataFrame) -> str:
    return interval_note(data).replace("occurrences", "pairs").replace("over sentences", "over pairs")


def _asked(means: pd.DataFrame) -> str:
    weights = "Rare tokens weigh more (idf)." if bool(means["idf"].any()) else "All tokens weigh the same."
    scale = (
        " Scores are rescaled: 0 is a random pair of this layer, 1 an equal one."
        if bool(means["rescaled"].any())
        else ""
    )
    return f"{weights}{scale}"


def _sentences(means: pd.DataFrame, human: pd.DataFrame | None, models: ShownModels) -> list[str]:
    """Of each model its best layer by people, or where no one scored the pairs, where they lie above random ones."""
    told = []
    for series in models.present(means[means["trained"]]):
        best = None if human is None else best_layer(human, series.key)
        if best is not None and human is not None:
            top = human[(human["series"] == series.key) & human["trained"] & (human["layer"] == best.top)]
            at_top = "" if best.layer == best.top else f"; the top has {number(Samples.of(top).estimate().value, 2)}"
            told.append(
                f"{series.label} agrees best with people in layer {best.layer} of {best.top}{alike_text(best)}: "
                f"{estimate_text(best.estimate)}{at_top}."
            )
            continue
        own = means[(means["series"] == series.key) & means["trained"]]
        above = own.assign(above=own["value"] - own["baseline"]).sort_values("above").iloc[-1]
        told.append(
            f"{series.label} sets these pairs farthest apart from random ones in layer {int(above['layer'])}: "
            f"{number(float(above['value']), 2)} beside {number(float(above['baseline']), 2)}."
        )
    return [sentence_start(one) for one in told]
