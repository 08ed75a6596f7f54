"""Rows of `space_similarity` for the report: pairs of lines, measures, means over pairs of models."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from .._curves import estimates
from .._figure import Method
from .._in_words import Estimate, Samples, seeds_of_pairs
from .._model_selection import JOIN, ModelSelection
from .._theme import Series

LAYERS = ["layer_a", "layer_b"]
CONTROL = ""
"""Key of the untrained pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairOfLines:
    """Two lines of the report whose layers are compared; the same line twice for models that differ in the seed."""

    key: str
    up: str  # model of the vertical axis
    across: str
    title: str
    same: bool = False  # models that differ only in the seed


def similarity_rows(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Add the columns `line` (key of a `PairOfLines`) and `pair`; the model of the earlier line is always a.

    Untrained models of different seeds form one control; if there are none, untrained models of one seed do.
    """
    rank = {series.key: index for index, series in enumerate(models.series)}
    swap = frame["series_a"].map(rank) > frame["series_b"].map(rank)
    other = {name: name[:-1] + ("b" if name[-1] == "a" else "a") for name in frame if name[-2:] in ("_a", "_b")}
    rows: Any = pd.concat([frame[~swap], frame[swap].rename(columns=other)])
    line = rows["series_a"] + JOIN + rows["series_b"]
    pair = rows["model_a"].astype(str) + " | " + rows["model_b"].astype(str)
    rows = rows.assign(line=line.where(rows["trained"], CONTROL), pair=pair)
    if "seed_a" not in rows:
        return rows
    other_seed = rows["seed_a"] != rows["seed_b"]
    return rows[rows["trained"] | other_seed | ~other_seed[~rows["trained"]].any()]


def pairs_of_lines(rows: pd.DataFrame, models: ModelSelection) -> list[PairOfLines]:
    """Pairs of different lines, then lines with themselves, then the control."""
    present = set(rows["line"])
    across = [(a, b) for index, a in enumerate(models.series) for b in models.series[index + 1 :]]
    pairs = [_pair(a, b, f"{a.label} – {b.label}") for a, b in across]
    pairs += [_pair(a, a, f"{a.label}, two seeds") for a in models.series]
    seeds = "seed_a" in rows and bool((rows["seed_a"] != rows["seed_b"])[rows["line"] == CONTROL].any())
    title = "two untrained models" + (", two seeds" if seeds else "")
    return [
        *(pair for pair in pairs if pair.key in present),
        *([PairOfLines(key=CONTROL, up="the one", across="the other", title=title)] if CONTROL in present else []),
    ]


def _pair(a: Series, b: Series, title: str) -> PairOfLines:
    up, across = (a.label, b.label) if a.key != b.key else ("one seed", "another seed")
    return PairOfLines(key=a.key + JOIN + b.key, up=up, across=across, title=title, same=a.key == b.key)


def equal_depth(table: pd.DataFrame) -> pd.Series:
    """Mask of the cells that compare layers of equal relative depth."""
    depth_a, depth_b = int(table["layer_a"].max()), int(table["layer_b"].max())
    return table["layer_a"] == (table["layer_b"] * depth_a / max(depth_b, 1)).round().astype(int)


def excess_at_equal_depth(rows: pd.DataFrame) -> Estimate:
    """Mean over layers of equal depth minus the mean over all others, paired within each pair of models."""
    chosen = equal_depth(rows)
    return (_mean(rows[chosen]) - _mean(rows[~chosen])).estimate()


def _mean(rows: pd.DataFrame) -> Samples:
    groups = [(pair, own.dropna(subset="value")) for pair, own in rows.groupby("pair")]
    groups = [(pair, own) for pair, own in groups if len(own)]
    return Samples.by_key(
        values={pair: float(own["value"].mean()) for pair, own in groups},
        replicates={pair: np.mean(np.stack(own["replicates"].to_list()), axis=0) for pair, own in groups},
        count=int(rows["count"].median()) if len(rows) else 0,
        units=seeds_of_pairs(rows, "pair", np.flatnonzero(~rows.duplicated("pair"))),
    )


METHOD = Method(
    id="space-similarity",
    title="Similarity of spaces",
    text="""
    RSA: Spearman correlation of the cosine distances between all pairs of words in two layers (Kriegeskorte et al.
    2008). PWCCA: canonical correlations weighted by what they account for, the mean of both sides (Morcos et al. 2018).
    CKA: ‖<i>Y</i>ᵀ<i>X</i>‖² / ‖<i>X</i>ᵀ<i>X</i>‖‖<i>Y</i>ᵀ<i>Y</i>‖ of centred vectors (Kornblith et al. 2019), by
    the unbiased estimates of Song et al. (2012), which may be negative. Procrustes: the angle
    arccos(‖<i>X</i>ᵀ<i>Y</i>‖<sub>*</sub> / ‖<i>X</i>‖‖<i>Y</i>‖) left after the best rotation, in radians (Williams et
    al. 2021). Intervals are a first-order estimate of what changes when a block of sentences is left out, ranks and
    weights included. Baseline: the words of one model shuffled. Layer by layer between models after Vázquez et al.
    (2021).
    """,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SimilarityMeasure:
    """One of the measures that the figure can show."""

    id: str
    label: str
    asks: str  # the question that it answers
    is_distance: bool = False


METRICS = (
    SimilarityMeasure(id="rsa", label="RSA", asks="do both layers rank the distances between words alike"),
    SimilarityMeasure(id="pwcca", label="PWCCA", asks="can each layer be mapped linearly onto the other"),
    SimilarityMeasure(id="cka_debiased", label="CKA", asks="do the same words have large products in both layers"),
    SimilarityMeasure(id="cka", label="biased CKA", asks="do the same words have large products (needs many words)"),
    SimilarityMeasure(
        id="cka_minibatch", label="minibatch CKA", asks="do the same words have large products within batches"
    ),
    SimilarityMeasure(
        id="procrustes", label="Procrustes", asks="how far apart are both shapes after rotation", is_distance=True
    ),
    SimilarityMeasure(id="svcca", label="SVCCA", asks="do the leading components correlate"),
    SimilarityMeasure(id="cca", label="mean CCA", asks="do all directions correlate"),
)


@dataclass(frozen=True, eq=False)
class Compared:
    """The rows of a page, their pairs of lines and their measures."""

    rows: pd.DataFrame
    lines: list[PairOfLines]
    metrics: list[SimilarityMeasure]

    @cached_property
    def tables(self) -> dict[str, dict[str, pd.DataFrame]]:
        """One row per pair of layers, by measure and measured pair of lines: means over pairs of models."""
        rows = self.rows
        measured = rows.groupby(["metric", "line"]).groups
        return {
            metric.id: {
                line.key: _means(rows[(rows["metric"] == metric.id) & (rows["line"] == line.key)])
                for line in self.lines
                if (metric.id, line.key) in measured
            }
            for metric in self.metrics
        }


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per pair of layers: mean over pairs of models with its interval, and the mean baseline."""
    table = estimates(rows.sort_values(LAYERS, kind="stable").astype(dict.fromkeys(LAYERS, int)), LAYERS, "pair")
    baseline = rows.groupby(LAYERS)["baseline"].mean().to_numpy()
    table = table.rename(columns={"seeds": "pairs"}).assign(baseline=baseline)
    return table[[*LAYERS, "value", "low", "high", "baseline", "pairs", "count", "shown"]]


def estimate_of(cell: Any) -> Estimate:
    value, low, high = (float(cell[name]) for name in ("value", "low", "high"))
    return Estimate(value=value, low=low, high=high, seeds=int(cell["pairs"]), count=int(cell["count"]))
