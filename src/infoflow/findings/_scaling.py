"""Multidimensional scaling: points in a plane whose distances approximate the input distances."""

# O objects, D dimensions of the picture

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import pdist, squareform

from infoflow.foundation import stream

_STEPS, _STILL = 2000, 1e-8
_STARTS = 3  # besides classical scaling: local minima of a dozen points may be worse than the best
_SHUFFLES = 10


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scaled:
    """A picture of distances, and its error."""

    points_OD: np.ndarray
    stress: float  # Kruskal's stress-1, see `scale`


def scale(distances_OO: Float[np.ndarray, "object object"], start_OD: np.ndarray | None = None, num: int = 2) -> Scaled:
    r"""Metric scaling by SMACOF, the best of several starts or from one start; equal input gives an equal picture.

    $$ \sigma_1 = \sqrt{\sum_{i<j} (d_{ij} - \delta_{ij})^2 / \sum_{i<j} d_{ij}^2} $$

    δ are the input distances and d those of the points; scikit-learn's SMACOF lowers the numerator. Starts are
    classical scaling and random pictures; a random one is chosen only if it ends clearly lower. A stress of 0.05 is
    considered good, 0.2 poor.

    Source: [@deleeuw1977], [@kruskal1964].
    """
    if start_OD is not None:
        return _descend(start_OD, distances_OO)
    best = _descend(classical_scaling(distances_OO, num), distances_OO)
    rng, size = stream("scaling-starts", len(distances_OO)), float(distances_OO.max(initial=0.0))
    for _ in range(_STARTS):
        other = _descend(rng.normal(0, size, (len(distances_OO), num)), distances_OO)
        best = other if other.stress < 0.999 * best.stress - 1e-9 else best
    return best


def _descend(points_OD: np.ndarray, distances_OO: np.ndarray) -> Scaled:
    from sklearn.manifold import smacof  # slow to import

    if not distances_OO.any():
        return Scaled(points_OD=np.zeros_like(points_OD), stress=0.0)
    options = {"max_iter": _STEPS, "eps": _STILL, "normalized_stress": False, "n_init": 1}
    found = smacof(distances_OO, n_components=points_OD.shape[1], init=points_OD, **options)[0]
    drawn = distances_between(found)
    raw = ((drawn - distances_OO) ** 2).sum()
    return Scaled(points_OD=found, stress=float(np.sqrt(raw / max((drawn**2).sum(), 1e-30))))


def classical_scaling(distances_OO: Float[np.ndarray, "object object"], num: int = 2) -> np.ndarray:
    """Principal coordinates of the doubly centred squared distances; the largest coordinate of each axis is positive.

    Source: [@torgerson1952].
    """
    size = len(distances_OO)
    centre = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances_OO**2 @ centre)
    largest = np.argsort(-values, kind="stable")[:num]
    points = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
    peaks = points[np.abs(points).round(12).argmax(axis=0), np.arange(points.shape[1])]
    return points * np.where(peaks < 0, -1.0, 1.0)


def aligned(points_OD: np.ndarray, onto_OD: np.ndarray) -> np.ndarray:
    """The points rotated, mirrored and moved, but not stretched, to come as near as possible to others."""
    return (points_OD - points_OD.mean(axis=0)) @ turn(points_OD, onto_OD) + onto_OD.mean(axis=0)


def turn(points_OD: np.ndarray, onto_OD: np.ndarray) -> np.ndarray:
    """The rotation, with or without reflection, (D, D), that brings centred points nearest to other centred points.

    It does not depend on sizes. Source: [@schonemann1966].
    """
    return orthogonal_procrustes(points_OD - points_OD.mean(axis=0), onto_OD - onto_OD.mean(axis=0))[0]


def shuffled_stress(distances_OO: Float[np.ndarray, "object object"]) -> float:
    """The mean stress of pictures whose distances are assigned to the pairs at random."""
    size = len(distances_OO)
    upper, rng = np.triu_indices(size, 1), stream("shuffled-stress", size)
    found = []
    for _ in range(_SHUFFLES):
        dealt = np.zeros_like(distances_OO)
        dealt[upper] = rng.permutation(distances_OO[upper])
        found.append(scale(dealt + dealt.T).stress)
    return float(np.mean(found))


def distances_between(points_OD: np.ndarray) -> np.ndarray:
    return squareform(pdist(points_OD))
