"""Maps of the same points in every layer: t-SNE, with each layer started from and aligned to the one below."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from torch import Tensor

from infoflow.foundation import UserError, stream

from ._views import Matrix, as_view, centred

_START = 1e-4  # spread of the first map's starting positions, as both libraries advise


class _Course(NamedTuple):
    """Numbers of steps for optimising a map; the first ones have stronger attraction, so that clusters form."""

    exaggerated: int
    exaggeration: float
    further: int


_FIRST, _NEXT = _Course(250, 12.0, 250), _Course(0, 1.0, 300)
"""Later maps start from the map below, unchanged.

On six sequences of seven layers of trained models, points moved half as far as from a shrunken start with exaggeration,
and kept as many of their ten nearest neighbours (within .02).
"""

Map = Float[np.ndarray, "point 2"]


def layer_maps(states: Sequence[Matrix], perplexity: float = 30.0, seed: int = 0) -> Float[np.ndarray, "layer point 2"]:
    """A two-dimensional map of the same points for every layer; neighbours in a layer are neighbours in its map.

    t-SNE of each layer with Euclidean distances. The first layer starts from its two principal components. Every other
    layer starts from the map below and is optimised further; then the result is shifted, rotated or mirrored, and
    scaled to match that map. So movement between maps reflects movement in the space, as far as a plane can show it.
    Distances between clusters, their sizes and the axes have no meaning in a t-SNE map.

    Args:
        states: One (point, width) matrix per layer, the same points in the same order.
        perplexity: Approximate number of neighbours that count; at most a third of the points.
        seed: Seeds the start if the first layer's points are all equal.

    Returns:
        (layer, point, 2), each map centred with a root mean square distance of 1 from its centre. The same input gives
        the same maps. openTSNE is used if it is installed (extra `maps`), otherwise scikit-learn, whose maps differ.

    Raises:
        UserError: No layers, fewer than 4 points, layers of different length, or a perplexity below 1.

    Source: [@maaten2008].
    """
    views = [as_view(x, f"states[{layer}]", torch.float32) for layer, x in enumerate(states)]
    if len({len(view) for view in views}) != 1 or len(views[0]) < 4 or perplexity < 1:
        raise UserError(
            "layer_maps needs at least one layer, the same 4 or more points in each, and a perplexity of at least 1. "
            f"Got layers of {[len(view) for view in views]} points and perplexity {perplexity}."
        )
    perplexity = used_perplexity(len(views[0]), perplexity)
    raw = _tsne(views[0], _first_start(views[0], seed), perplexity, _FIRST)
    maps = [_standardised(raw)]
    for view in views[1:]:
        raw = _tsne(view, raw, perplexity, _NEXT)
        maps.append(_aligned(_standardised(raw), maps[-1]))
    return np.stack(maps)


def used_perplexity(num_points: int, perplexity: float) -> float:
    """The requested perplexity, or a third of the points if that is lower."""
    return min(float(perplexity), (num_points - 1) / 3)


def _first_start(x: Float[Tensor, "point width"], seed: int) -> Map:
    left, scales, _ = torch.linalg.svd(centred(x.double()), full_matrices=False)
    plane = (left * scales)[:, :2].numpy()
    if plane.shape[1] < 2 or plane[:, 1].std() <= 1e-9 * max(plane[:, 0].std(), 1e-9):
        plane = stream("layer-maps", seed).normal(size=(len(x), 2))
    # A singular vector's sign is arbitrary, so the largest entry is made positive.
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), [0, 1]])
    return plane * signs / plane.std(axis=0).max() * _START


def _tsne(x: Float[Tensor, "point width"], start: Map, perplexity: float, course: _Course) -> Map:
    from sklearn.manifold import TSNE  # slow import

    # Threads would make sums, and so maps, differ between machines.
    with threadpool_limits(limits=1):
        if find_spec("openTSNE") is not None:
            return _by_opentsne(x, start, perplexity, course)
        init: Any = start.astype(np.float32)
        tsne = TSNE(
            perplexity=perplexity,
            init=init,
            # The library always uses the first 250 steps for the exaggeration, even with factor 1.
            early_exaggeration=course.exaggeration,
            max_iter=course.exaggerated + course.further,
            random_state=0,
            n_jobs=1,
        )
        return tsne.fit_transform(x.numpy()).astype(np.float64)


def _by_opentsne(x: Float[Tensor, "point width"], start: Map, perplexity: float, course: _Course) -> Map:
    from openTSNE import TSNE as OpenTSNE  # pyright: ignore[reportMissingImports]  # the extra `maps`

    tsne = OpenTSNE(
        perplexity=perplexity,
        initialization=start,
        early_exaggeration_iter=course.exaggerated,
        early_exaggeration=course.exaggeration,
        n_iter=course.further,
        neighbors="exact",
        negative_gradient_method="bh",
        random_state=0,
        n_jobs=1,
    )
    with _without_start_warning():
        return np.asarray(tsne.fit(x.numpy()), dtype=np.float64)


@contextmanager
def _without_start_warning() -> Iterator[None]:
    """Suppresses openTSNE's warning about a wide start, because the start is the map of the previous layer."""
    log = logging.getLogger("openTSNE.tsne")

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Standard deviation of embedding")

    log.addFilter(other)
    try:
        yield
    finally:
        log.removeFilter(other)


def _standardised(points: Map) -> Map:
    points = points - points.mean(axis=0)
    size = np.sqrt(np.square(points).sum(axis=1).mean())
    return points / size if size > 0 else points


def _aligned(points: Map, onto: Map) -> Map:
    """The standardised map, rotated or mirrored to match another (Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ onto)
    return points @ (left @ right)
