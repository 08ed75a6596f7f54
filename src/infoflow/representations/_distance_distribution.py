"""The distribution of similarities and distances between random words."""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import SAMPLE_COLUMNS, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import UserError, current_display, stream
from infoflow.results import Column, TableSchema

from ._similarity import unit_rows
from ._word_rows import WordRows, check_words

_COSINE_BINS = 80
_BINS = 32  # Euclidean: between 32 and 64, since bins are a power of two wide

DISTANCE_DISTRIBUTION = TableSchema(
    name="distance_distribution",
    version=2,
    description="Histograms of the cosine and of the Euclidean distance between random words, by layer.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="metric", dtype="string", unit="", description="cosine or euclidean"),
        Column(name="bin_low", dtype="float64", unit="", description="lower end of the bin, which it includes"),
        Column(
            name="bin_high",
            dtype="float64",
            unit="",
            description="upper end; Euclidean bins are a power of two wide, so those of two models nest",
        ),
        Column(name="share", dtype="float64", unit="", description="share of the pairs in the bin"),
        Column(
            name="baseline",
            dtype="float64",
            unit="",
            description="the same of an isotropic Gaussian with the layer's mean squared length",
        ),
        Column(name="count", dtype="int64", unit="pairs", description="pairs of words; zero vectors have no cosine"),
        *SAMPLE_COLUMNS,
    ),
)


class DistanceDistribution(SampleMeasure):
    """Histograms of cosines and Euclidean distances between random pairs of words, layer by layer.

    Words are as in `WordGeometry`. The two of a pair are different occurrences of any words.

    Args:
        occurrences: At most this many sampled tokens.
        pairs: Number of random pairs, the same in every layer.
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.

    Source: [@vazquez2021].
    """

    table: ClassVar[TableSchema] = DISTANCE_DISTRIBUTION

    def __init__(self, occurrences: int = 20_000, pairs: int = 20_000, words: str = "mean") -> None:
        check_words(words)
        if pairs < 1:
            raise UserError(f"pairs must be at least 1. Got {pairs}.")
        self.occurrences, self.pairs, self.words = occurrences, pairs, words
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        kept = WordRows.of(sample, self.words).sample
        if len(kept) < 2:
            current_display().note(f"{self.name} of {sample.facts.model} is skipped: the sample has no two words.")
            return pd.DataFrame(columns=self.table.column_names)
        first, second = _pairs(len(kept), self.pairs)
        gaussian = torch.from_numpy(stream("isotropic-gaussian").standard_normal((len(kept), kept.width)))
        controls = {metric: measured(gaussian[first], gaussian[second]) for metric, measured in _METRICS.items()}
        frames = []
        for layer in range(kept.num_states):
            states = torch.from_numpy(kept.states(layer))
            x, y = states[first].double(), states[second].double()
            scales = {"cosine": 1.0, "euclidean": float(states.double().square().mean().sqrt())}
            for metric, measured in _METRICS.items():
                frame = _histogram(metric, measured(x, y), controls[metric] * scales[metric])
                frames.append(frame.assign(layer=layer, metric=metric))
        return pd.concat(frames, ignore_index=True).assign(stack=kept.facts.stack, **sample.sizes(self.request))


def _pairs(num: int, pairs: int) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """Random pairs of different rows."""
    random = stream("distance-pairs")
    first = random.integers(0, num, pairs)
    second = (first + random.integers(1, num, pairs)) % num
    return torch.from_numpy(first), torch.from_numpy(second)


def _cosines(x: Float[Tensor, "pair width"], y: Float[Tensor, "pair width"]) -> Float[np.ndarray, " defined"]:
    cosines = (unit_rows(x) * unit_rows(y)).sum(1)
    return cosines[x.any(1) & y.any(1)].clamp(-1, 1).numpy()


def _distances(x: Float[Tensor, "pair width"], y: Float[Tensor, "pair width"]) -> Float[np.ndarray, " pair"]:
    return torch.linalg.vector_norm(x - y, dim=1).numpy()


_METRICS = {"cosine": _cosines, "euclidean": _distances}


def _edges(metric: str, *values: Float[np.ndarray, " _"]) -> Float[np.ndarray, " edge"]:
    if metric == "cosine":
        return np.linspace(-1, 1, _COSINE_BINS + 1)
    top = max(float(each.max()) for each in values)
    width = 2.0 ** np.ceil(np.log2(top / (2 * _BINS))) if top > 0 else 1.0
    return width * np.arange(np.floor(top / width) + 2)


def _histogram(
    metric: str, values: Float[np.ndarray, " pair"], controls: Float[np.ndarray, " control"]
) -> pd.DataFrame:
    edges = _edges(metric, values, controls)
    share, baseline = (np.histogram(each, edges)[0] / max(len(each), 1) for each in (values, controls))
    columns: dict[str, Any] = {"bin_low": edges[:-1], "bin_high": edges[1:], "share": share, "baseline": baseline}
    return pd.DataFrame(columns | {"count": len(values)})
