"""The intrinsic dimension of each layer."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, UserError, current_display, stream
from infoflow.results import TableSchema

from ._geometry_table import GEOMETRY, WordRows, check_words, geometry_row
from ._nearest import nearest
from ._views import UNDEFINED, Jackknifed, Matrix, as_view, centred

_LEAST = 3  # a point and its two nearest neighbours
_TOLERANCE = 1e-5
"""Float32 states of equal inputs differ by less than this share of their length; other states by far more."""
ROUNDING = 1e-6  # mean ln μ at which the two distances differ by no more than float32 rounding


class IntrinsicDimension(SampleMeasure):
    """The intrinsic dimension of each layer's word states: `two_nn_dimension`, by maximum likelihood.

    The baseline is the same statistic for as many points from a Gaussian with the layer's mean and covariance. If the
    value is below it, the space is curved or clustered, and its covariance overstates the dimension. More points
    resolve a finer scale and change the estimate, so compare only rows of equal count.

    States that repeat another one up to rounding are dropped and counted in `left_out`, such as those of the same word
    in embeddings without positions, or of the same beginning of a sentence in a causal LM. Error bars come from a
    first-order jackknife over sentences, and allow for correlated ratios of near points (`spread_of_neighbours`).

    Args:
        occurrences: At most this many sampled tokens; time grows quadratically.
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.

    Source: [@facco2017].
    """

    table: ClassVar[TableSchema] = GEOMETRY

    def __init__(self, occurrences: int = 4000, words: str = "mean") -> None:
        check_words(words)
        if occurrences < _LEAST:
            raise UserError(f"occurrences must be at least {_LEAST}. Got {occurrences}.")
        self.occurrences, self.words = occurrences, words
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = WordRows.of(sample, self.words)
        if len(rows.sample) == 0:
            return pd.DataFrame(columns=self.table.column_names)
        keys = {"stack": sample.facts.stack, "space": "raw", "words": rows.words, **sample.sizes(self.request)}
        return pd.DataFrame(
            [{**keys, "layer": layer, **_layer(rows.sample, layer)} for layer in range(sample.num_states)]
        )


def _layer(sample: TokenSample, layer: int) -> dict[str, Any]:
    states = torch.from_numpy(sample.states(layer)).to(torch.float64)
    kept = distinct_points(states, _TOLERANCE)
    found, baseline = UNDEFINED, UNDEFINED
    if len(kept) >= _LEAST:
        found = _dimension(states[kept], sample.blocks[kept.numpy()])
        baseline = _dimension(_gaussian_like(states[kept]), sample.blocks[kept.numpy()])
    else:
        current_display().note(
            f"The intrinsic dimension of layer {layer} is undefined: it has only {len(kept)} points."
        )
    return geometry_row(
        "intrinsic_dimension",
        found.value,
        found.replicates,
        baseline.value,
        count=len(kept),
        left_out=len(states) - len(kept),
    )


def _dimension(points: Float[Tensor, "point width"], blocks: np.ndarray) -> Jackknifed:
    found = two_neighbours(points)
    ratios = found.log_ratios.numpy()
    if ratios.mean() <= ROUNDING:
        return UNDEFINED
    logs = np.bincount(blocks, weights=ratios, minlength=NUM_BLOCKS)
    numbers = np.bincount(blocks, minlength=NUM_BLOCKS)
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (numbers.sum() - numbers) / (logs.sum() - logs)
    value = float(len(ratios) / logs.sum())
    wider = spread_of_neighbours(ratios, found.indices.numpy(), blocks)
    return Jackknifed(value=value, without_block=value + wider * (without - value))


def spread_of_neighbours(
    ratios: Float[np.ndarray, " point"], neighbours: Int[np.ndarray, "point two"], blocks: Int[np.ndarray, " point"]
) -> float:
    r"""Factor on the standard error due to correlated ratios of near points from different sentences.

    $$ \sqrt{1 + \frac{\sum_{i \sim j,\, b_i \ne b_j} u_i u_j}{\sum_b (\sum_{i \in b} u_i)^2}}, \qquad
       u_i = \ln \mu_i - \overline{\ln \mu} $$

    i ~ j means that one is among the two nearest neighbours of the other. The factor is at least 1. For samples of
    Gaussian and of clustered points the standard error was 0.7 to 0.8 times the true spread without this factor, and
    0.85 to 1.0 times with it.

    Source: [@conley1999], a variance under dependence between near observations.
    """
    centred_ratios = ratios - ratios.mean()
    own = np.square(np.bincount(blocks, weights=centred_ratios)).sum()
    first = np.repeat(np.arange(len(ratios)), neighbours.shape[1])
    pairs = np.unique(np.sort(np.stack([first, neighbours.ravel()]), axis=0), axis=1)
    apart = pairs[:, blocks[pairs[0]] != blocks[pairs[1]]]
    shared = 2 * (centred_ratios[apart[0]] * centred_ratios[apart[1]]).sum()
    return float(np.sqrt(max(1.0, 1 + shared / own))) if own > 0 else 1.0


def _gaussian_like(points: Float[Tensor, "point width"]) -> Float[Tensor, "point width"]:
    """As many points from a Gaussian with the same covariance."""
    shifted = centred(points)
    values, vectors = torch.linalg.eigh(shifted.mT @ shifted / len(points))
    normal = torch.from_numpy(stream("gaussian-of-covariance").standard_normal(tuple(points.shape)))
    return normal * values.clamp(min=0).sqrt() @ vectors.mT


def two_nn_dimension(x: Matrix, method: str = "mle", discard: float = 0.1) -> float:
    r"""Intrinsic dimension of a point cloud, from the ratio of each point's two nearest distances.

    $$ \mu_i = r_2 / r_1, \qquad \hat d = N / \sum_i \ln \mu_i $$

    With `method="linear"`, $\hat d$ is instead the slope through the origin of $-\ln(1 - F(\mu))$ on $\ln \mu$, without
    the largest `discard` of the ratios (more robust to outliers). Repeated points are dropped first, with a note.

    Args:
        x: (token, width), float32 or float64; computed in float64.
        method: Maximum likelihood or the linear fit of [@facco2017].
        discard: Share of the largest ratios that the linear fit leaves out.

    Returns:
        Dimension, a positive number; NaN with a warning if the two distances are always equal (points of a lattice).

    Raises:
        UserError: Fewer than 3 distinct points, or an unknown method.

    Source: [@facco2017].
    """
    if method not in ("mle", "linear") or not 0 <= discard < 1:
        raise UserError(f'method must be "mle" or "linear" and discard lie in [0, 1). Got {method} and {discard}.')
    view = as_view(x, "x")
    points = view[distinct_points(view)]
    if len(points) < len(view):
        current_display().note(f"Intrinsic dimension: {len(view) - len(points)} repeated points left out.")
    if len(points) < 3:
        raise UserError(f"The intrinsic dimension needs at least 3 distinct points. Got {len(points)}.")
    ratios = two_neighbours(points).log_ratios.sort().values
    kept = ratios if method == "mle" else ratios[: max(1, int(len(ratios) * (1 - discard)))]
    if kept.mean() <= ROUNDING:
        current_display().warn("The intrinsic dimension is undefined: two nearest neighbours are equally far.")
        return math.nan
    if method == "mle":
        return float(len(ratios) / ratios.sum())
    share = torch.arange(1, len(kept) + 1, dtype=kept.dtype) / len(ratios)
    # With discard=0 the largest ratio has F = 1, whose logarithm is infinite.
    kept, share = kept[share < 1], share[share < 1]
    return float((kept @ -torch.log1p(-share)) / kept.square().sum())


class TwoNeighbours(NamedTuple):
    """The two nearest other points of every point."""

    log_ratios: Float[Tensor, " point"]  # ln(r2 / r1)
    indices: Int[Tensor, "point two"]


def two_neighbours(points: Float[Tensor, "point width"]) -> TwoNeighbours:
    """The two nearest other points; distances are recomputed from differences, which is exact for close points."""
    parts, indices = [], []
    for found in nearest(points, 2, "euclidean", torch.arange(len(points))):
        differences = points[found.indices] - points[found.queries, None]
        parts.append(torch.linalg.vector_norm(differences, dim=2).sort(dim=1).values)
        indices.append(found.indices)
    distances = torch.cat(parts)
    return TwoNeighbours(torch.log(distances[:, 1] / distances[:, 0]), torch.cat(indices))


def distinct_points(x: Float[Tensor, "point width"], tolerance: float = 0.0) -> Int[Tensor, " distinct"]:
    """The indices, in order, of the rows that do not repeat an earlier row.

    With a tolerance, a row repeats another at a distance of at most this share of the rows' root mean square length,
    because equal inputs give slightly different outputs if batches are padded differently.
    """
    kept = _first_of_equals(x)
    reach = tolerance * float(x.square().sum(1).mean().sqrt())
    if reach == 0 or len(kept) < 2:
        return kept
    repeated = torch.zeros(len(x), dtype=torch.bool)
    for group in _close_in_one_direction(x[kept], reach):
        repeated[kept[group]] = _repeats(x[kept[group]], reach)
    return kept[~repeated[kept]]


def _first_of_equals(x: Float[Tensor, "point width"]) -> Int[Tensor, " distinct"]:
    values, names = torch.unique(x, dim=0, return_inverse=True)
    firsts = torch.full((len(values),), len(x)).scatter_reduce_(0, names, torch.arange(len(x)), "amin")
    return firsts.sort().values


def _close_in_one_direction(x: Float[Tensor, "point width"], reach: float) -> list[Int[Tensor, " close"]]:
    """Groups of rows that contain all pairs within reach, because such pairs are close along any single direction."""
    direction = torch.from_numpy(stream("distinct-points").standard_normal(x.shape[1])).to(x.dtype)
    places, order = (x @ (direction / direction.norm())).sort()
    ends = (places.diff() > reach).nonzero()[:, 0] + 1
    return [group.sort().values for group in order.tensor_split(ends) if len(group) > 1]


def _repeats(x: Float[Tensor, "close width"], reach: float) -> Bool[Tensor, " close"]:
    """Whether each row is within reach of an earlier row that is not itself a repetition."""
    repeats = torch.zeros(len(x), dtype=torch.bool)
    for index in range(len(x) - 1):
        if not repeats[index]:
            repeats[index + 1 :] |= torch.linalg.vector_norm(x[index + 1 :] - x[index], dim=1) <= reach
    return repeats
