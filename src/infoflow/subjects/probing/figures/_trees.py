"""Whether the geometry encodes syntax trees: probes compared with chains, random maps and untrained models."""

import math
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from infoflow.report._curves import interval_note
from infoflow.report._figure import Method, ReportFigure
from infoflow.report._in_words import Candidate, Samples, clear_cases, extremes_words, listed
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._lines import COSINE, SHARE

from ..measures import PROBE_TREES
from ._rows import Best, above_controls, best_layers, curves_with, held_out_at, of, untrained_best

_TREES = Method(
    id="probe-trees",
    title="Structural probe",
    text="""
    A matrix <i>B</i> is trained so that ‖<i>B</i>(<i>h</i><sub>i</sub> − <i>h</i><sub>j</sub>)‖² is the number of edges
    between words <i>i</i> and <i>j</i> of the dependency tree, another so that ‖<i>Bh</i><sub>i</sub>‖² is a word's
    depth (Hewitt and Manning 2019). UUAS: the share of gold edges in the minimum spanning tree of predicted distances,
    without punctuation. Spearman's correlation of predicted and gold distances is averaged within sentences of each
    length, then over lengths. Root: the word of least predicted depth.
    """,
)
_CHAIN, _RANDOM = "chain of words", "random map"


class _Score(NamedTuple):
    structure: str
    metric: str
    title: str
    axis: str
    bounds: tuple[float, float]

    @property
    def y_axis(self) -> dict[str, Any]:
        baseline = _CHAIN if self.structure == "distance" else _RANDOM
        return {"y_title": self.axis, "baseline_name": baseline, "bounds": self.bounds, "controls": (_RANDOM,)}

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return of(frame, structure=self.structure, metric=self.metric)


_SCORES = (
    _Score("distance", "uuas", "edges of the tree", "UUAS (share of edges)", SHARE),
    _Score("distance", "spearman", "distances in the tree", "Spearman's correlation", COSINE),
    _Score("depth", "root", "the root", "share of roots found", SHARE),
    _Score("depth", "spearman", "depths in the tree", "Spearman's correlation", COSINE),
)


def trees_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per score; None if there are no scores."""
    found = {score: score.rows(frame) for score in _SCORES}
    tables = {score: _table(rows) for score, rows in found.items() if len(of(rows, probe="structural"))}
    tables = {score: table for score, table in tables.items() if bool((table["group"] == "trained").any())}
    if not tables:
        return None
    data = stacked({(score.structure, score.metric): table for score, table in tables.items()}, "structure", "metric")
    answer = []
    for score in tables:
        own = of(found[score], probe="structural")
        answer += above_controls(score.title, own, models, partial(_trivial, found[score]))
    return ReportFigure(
        id="probe-trees",
        question="Do vectors hold the tree of a sentence?",
        answer=answer,
        words=_words(next(iter(tables)), found, models),
        panels=[
            panel
            for score, table in tables.items()
            for panel in layer_panels({score.title: table}, models, **score.y_axis)
        ],
        caption=f"{_counts(data)} {_trained_on(frame)} Each panel has its own scale.",
        how_to_read=[
            "A linear map is trained so that squared distances between mapped words are distances in the dependency "
            "tree, another so that squared lengths are depths. Up, in the first panel: the share of the tree's edges "
            "that are also in the minimum spanning tree of predicted distances; in the others: how well predicted "
            "distances and depths are in the right order, and how often the root is found.",
            "The dotted line attaches every word to its neighbour: many edges are that short. Dash and dots: a map "
            "that was not trained. Dashed: a map trained on an untrained model, which has words and positions but no "
            "syntax.",
            "Only what lies above all of these is a tree that the model has built. It would be surprising if "
            "embeddings alone, which see no other word, came near the best layer.",
        ],
        method=_TREES,
        data=data,
        tables=(PROBE_TREES.name,),
        findings=("probing:P-4",),
        payload={"apart": True},
    )


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """Curves of trained maps; for depths, the random map is the baseline and has its own line."""
    own, random = of(rows, probe="structural"), of(rows, probe="random")
    if bool((own["structure"].astype(str) == "depth").any()) and len(random):
        own = own.assign(baseline=math.nan)
    return curves_with(own, {_RANDOM: random})


def _counts(data: pd.DataFrame) -> str:
    note = interval_note(data).split(";")[0].removesuffix(".")
    trained = data[data["group"] == "trained"]
    kinds = {"uuas": "edges", "root": "sentences"}
    counts = [
        f"{int(own['count'].median()):,} {kinds[str(metric)]}"
        for metric, own in trained[trained["metric"].isin(list(kinds))].groupby("metric", sort=False)
    ]
    return f"{note}; {listed(counts)} of the test part." if counts else f"{note}."


def _trained_on(frame: pd.DataFrame) -> str:
    maps = of(frame, probe="structural")
    rank, sentences = int(maps["rank"].max()), int(maps["training"].median())
    left = int(maps["no_tree"].max())
    without = f"; {left:,} sentences without one tree are left out" if left else ""
    return f"Maps to {rank} dimensions, trained on {sentences:,} sentences{without}."


def _trivial(rows: pd.DataFrame, line: Series, best: Best) -> dict[str, Samples]:
    """The scores that need no training: of trees that attach each word to its neighbour, and of a random map."""
    chain, random = (of(rows, probe=name) for name in ("chain", "random"))
    return {
        "a chain of words": held_out_at(chain, line.key, -1),
        "a random map": held_out_at(random, line.key, best.layer),
    }


def _words(score: _Score, found: dict[_Score, pd.DataFrame], models: ModelSelection) -> str:
    """The margin of each model's best layer over the score's first available control."""
    rows = found[score]
    own = of(rows, probe="structural")
    stated: dict[str, list[Candidate]] = {}
    for series, best in best_layers(own, models).items():
        here = held_out_at(own, series.key, best.layer)
        controls = {"an untrained model's best layer": untrained_best(own, series.key), **_trivial(rows, series, best)}
        for name, control in controls.items():
            if control:
                stated.setdefault(name, []).append(Candidate(f"in {series.label}", (here - control).estimate()))
    name = next(iter(stated), "")
    what = f"{score.axis.split(' (')[0]} at the best layer, above {name},"
    return extremes_words(what, stated[name], end=clear_cases(stated[name])) if name else ""
