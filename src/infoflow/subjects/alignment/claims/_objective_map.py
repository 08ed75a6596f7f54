"""The objective map of a study: objectives in a plane by their distances, and whether neighbours share a family.

It uses only the tables about pairs of models and about heads. Distances are means over seeds, and the picture of each
seed is rotated onto that of the mean. The control uses untrained models, which differ by their masks, not by learning.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import pdist, squareform

from infoflow.findings._finding import wilson
from infoflow.findings._model_group import ModelGroup, model_groups
from infoflow.foundation import stream
from infoflow.objectives import OBJECTIVES
from infoflow.results import END, Column, TableSchema

from ._objective_distances import ASPECTS, Likeness, ObjectiveDistance, Pair, summary

# O objects whose distances are given, D dimensions of the picture


_STEPS, _STILL = 2000, 1e-8
_STARTS = 3  # random starts besides classical scaling, since a dozen points have several local minima
_SHUFFLES = 10


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scaled:
    """A picture of distances, and its stress."""

    points_OD: np.ndarray
    stress: float  # Kruskal's stress-1, see `scale`


def scale(distances_OO: Float[np.ndarray, "object object"], start_OD: np.ndarray | None = None, num: int = 2) -> Scaled:
    r"""Place objects so that their distances are close to `distances_OO` (metric scaling by SMACOF), from `start_OD`.

    Without `start_OD`, it is the best result of several starts. Equal input gives equal pictures.

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
    if not distances_OO.any():
        return Scaled(points_OD=np.zeros_like(points_OD), stress=0.0)
    from sklearn.manifold import smacof  # slow to import

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
    """Rotate, reflect and shift points, without scaling, so that they are as near as possible to `onto_OD`."""
    return (points_OD - points_OD.mean(axis=0)) @ turn(points_OD, onto_OD) + onto_OD.mean(axis=0)


def turn(points_OD: np.ndarray, onto_OD: np.ndarray) -> np.ndarray:
    """The rotation, with or without reflection, (D, D), that brings centred points nearest to other centred points.

    It does not depend on the scale of the points. Source: [@schonemann1966].
    """
    return orthogonal_procrustes(points_OD - points_OD.mean(axis=0), onto_OD - onto_OD.mean(axis=0))[0]


def shuffled_stress(distances_OO: Float[np.ndarray, "object object"]) -> float:
    """The mean stress of pictures of randomly shuffled distances."""
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


# O objectives, S seeds


LEAST_OBJECTIVES = 5
MEAN = -1
"""The value of the column `seed` for the mean of all seeds."""
_PERMUTATIONS = 9999
_DIGITS = 9  # decimals to which distances are rounded, because identical untrained models differ by rounding errors


def _text(name: str, description: str) -> Column:
    return Column(name, "string", "", description)


def _number(name: str, unit: str, description: str) -> Column:
    return Column(name, "float64", unit, description)


_ABOUT = (
    _text("architecture", "family of the blocks"),
    _text("aspect", "aspect in which the models are compared: spaces, spaces by CKA, heads, learning"),
    Column("trained", "bool", "", "false: models as initialised (the control)"),
)
_SEEDS = Column("seeds", "int64", "seeds", "number of seeds behind the value")

OBJECTIVE_DISTANCES = TableSchema(
    name="objective_distances",
    description="Distance between the models of two objectives, mean over seeds. If both are the same objective, it is "
    "the distance between models of two seeds.",
    columns=(
        *_ABOUT,
        _text("measure", "measure of the distance"),
        _text("first", "objective, with its variant"),
        _text("second", "the other objective, or the same one for a distance between seeds"),
        _number("value", "see measure", "distance, at least 0"),
        _number("low", "see measure", "lower end of its 95% interval over seeds and sentences; NaN without either"),
        _number("high", "see measure", "upper end of the interval"),
        _SEEDS,
    ),
)
OBJECTIVE_MAP = TableSchema(
    name="objective_map",
    description="Points in a plane whose distances approximate those of objective_distances (SMACOF), for the "
    "mean over seeds and for each seed rotated onto it; axes have no meaning.",
    columns=(
        *_ABOUT,
        _text("objective", "what the models were trained for"),
        _text("variant", 'variant of the objective; "": none'),
        _text("family", "family that the objective declares"),
        Column("seed", "int64", "", "seed; -1: the mean of all"),
        _number("x", "of the distance", "horizontal position"),
        _number("y", "of the distance", "vertical position, upwards"),
        _number("stress", "", "Kruskal's stress-1 of the picture: 0 is exact, .2 is poor"),
        _number("shuffled_stress", "", "stress for shuffled distances, mean of 10; NaN for single seeds"),
        _text("nearest", "the closest objective, with its variant; ties: the first by name"),
        _text("nearest_family", "family of the closest objective"),
        _number("nearest_distance", "of the distance", "distance to the closest objective"),
        Column("equally_near", "int64", "objectives", "number of objectives at this distance"),
        _SEEDS,
    ),
)
OBJECTIVE_FAMILIES = TableSchema(
    name="objective_families",
    description="Share of the objectives whose nearest neighbour belongs to the family they declare, among "
    "those with a relative in the map.",
    columns=(
        *_ABOUT,
        _number("value", "share", "share of the objectives"),
        _number("low", "share", "lower end of Wilson's 95% interval for `count`, and no higher than any single seed"),
        _number("high", "share", "upper end of that interval, and no lower than any single seed"),
        _number("baseline", "share", "share expected with shuffled families"),
        _number("p", "probability", "probability that shuffled families reach the share (9,999 permutations)"),
        Column("count", "int64", "objectives", "number of objectives with a relative in the map"),
        _SEEDS,
    ),
)
MAP_TABLES = (OBJECTIVE_DISTANCES, OBJECTIVE_MAP, OBJECTIVE_FAMILIES)
"""The three tables of the objective map."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Matrices:
    """Distances between all pairs of some objectives."""

    names: list[str]
    mean_OO: np.ndarray
    by_seed: dict[int, np.ndarray]  # only for seeds that have all pairs


def objective_map(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables `MAP_TABLES` of a run, by name; none if fewer than 5 objectives were compared with each other.

    They cover each architecture and aspect, trained and untrained. Objectives that lack comparisons are left out, those
    that lack most first; a plan whose `pairs` contain "objectives" compares all objectives without a variant.
    """
    read = dict.fromkeys(name for aspect in ASPECTS for name in aspect.tables)
    parts: dict[str, list[dict]] = {schema.name: [] for schema in MAP_TABLES}
    for models in model_groups(tables, read):
        if models.update != END:
            continue
        picture: dict[str, np.ndarray] = {}  # of the first aspect; the others are rotated onto it
        for aspect in ASPECTS:
            for trained in (True, False):
                for name, rows in _rows_of(models, aspect, trained, picture).items():
                    parts[name] += rows
    schemas = {schema.name: schema for schema in MAP_TABLES}
    return {name: schemas[name].conform(pd.DataFrame(rows)) for name, rows in parts.items() if rows}


def _rows_of(
    models: ModelGroup, aspect: Likeness, trained: bool, picture: dict[str, np.ndarray]
) -> dict[str, list[dict]]:
    try:
        found = list(aspect.distances(models, trained))
    except (KeyError, ValueError, TypeError, IndexError):  # a damaged table affects only its own map
        return {}
    matrices = complete(found)
    if len(matrices.names) < LEAST_OBJECTIVES:
        return {}
    about = {"architecture": models.architecture, "aspect": aspect.name, "trained": trained}
    pairs: dict[Pair, list[ObjectiveDistance]] = {}
    for one in found:
        if set(one.objectives) <= set(matrices.names):
            pairs.setdefault(one.objectives, []).append(one)
    distances = [
        {**about, "measure": aspect.measure, "first": a, "second": b, **summary(own)} for (a, b), own in pairs.items()
    ]
    return {
        OBJECTIVE_DISTANCES.name: distances,
        OBJECTIVE_MAP.name: [{**about, **row} for row in _places(matrices, picture)],
        OBJECTIVE_FAMILIES.name: [{**about, **row} for row in _shares(matrices)],
    }


def complete(distances: list[ObjectiveDistance]) -> _Matrices:
    """Choose objectives that were all compared with each other, by dropping those with the fewest comparisons."""
    cells: dict[Pair, list[ObjectiveDistance]] = {}
    for one in distances:
        if one.objectives[0] != one.objectives[1]:
            cells.setdefault(one.objectives, []).append(one)
    names = sorted({name for pair in cells for name in pair})
    while names:
        lacking = {name: sum(tuple(sorted((name, other))) not in cells for other in names) - 1 for name in names}
        worst = max(names, key=lambda name: (lacking[name], name))
        if lacking[worst] == 0:
            break
        names.remove(worst)
    seeds = sorted({one.seeds[0] for own in cells.values() for one in own})
    by_seed = {seed: _matrix(names, cells, {seed}) for seed in seeds}
    return _Matrices(
        names=names,
        mean_OO=_matrix(names, cells, set(seeds)),
        by_seed={seed: matrix for seed, matrix in by_seed.items() if np.isfinite(matrix).all()},
    )


def _matrix(names: list[str], cells: Mapping[Pair, list[ObjectiveDistance]], seeds: set[int]) -> np.ndarray:
    """Mean distance of each pair over the seeds; NaN if the pair has no distance under them."""
    matrix = np.zeros((len(names), len(names)))
    for i, first in enumerate(names):
        for j, second in enumerate(names[:i]):
            values = [one.value for one in cells[second, first] if one.seeds[0] in seeds]
            matrix[i, j] = matrix[j, i] = round(float(np.mean(values)), _DIGITS) if values else np.nan
    return matrix


def family_of(name: str) -> str:
    """The family that an objective declares, whatever its variant; "" if no registry contains it."""
    known = OBJECTIVES.get(name.partition("+")[0])
    return known.family if known else ""


def nearest(matrix_OO: np.ndarray) -> np.ndarray:
    """The nearest neighbours of each objective as a mask (O, O); several if they are equally near."""
    apart = matrix_OO + np.diag(np.full(len(matrix_OO), np.inf))
    return apart <= apart.min(axis=1, keepdims=True)


def _places(matrices: _Matrices, picture: dict[str, np.ndarray]) -> list[dict]:
    """One row for each objective in the mean picture, then one in each seed's picture if there are several seeds."""
    mean = scale(matrices.mean_OO)
    common = [name for name in matrices.names if name in picture]
    points = mean.points_OD
    if len(common) > 2:
        own = [matrices.names.index(name) for name in common]
        onto = np.array([picture[name] for name in common])
        # The objectives common to both pictures determine the rotation.
        points = (points - points.mean(axis=0)) @ turn(points[own], onto)
    mean = Scaled(points_OD=points, stress=mean.stress)
    if not picture:
        picture.update(zip(matrices.names, points, strict=True))
    rows = _rows(matrices, matrices.mean_OO, mean, MEAN, shuffled_stress(matrices.mean_OO))
    for seed, matrix in matrices.by_seed.items() if len(matrices.by_seed) > 1 else ():
        own = scale(matrix, start_OD=points)
        drawn = Scaled(points_OD=aligned(own.points_OD, points), stress=own.stress)
        rows += _rows(matrices, matrix, drawn, seed, np.nan)
    return rows


def _rows(matrices: _Matrices, matrix_OO: np.ndarray, drawn: Scaled, seed: int, shuffled: float) -> list[dict]:
    return [
        {
            "objective": name.partition("+")[0],
            "variant": name.partition("+")[2],
            "family": family_of(name),
            "seed": seed,
            "x": float(drawn.points_OD[row, 0]),
            "y": float(drawn.points_OD[row, 1]),
            "stress": drawn.stress,
            "shuffled_stress": shuffled,
            "nearest": matrices.names[others.argmax()],
            "nearest_family": family_of(matrices.names[others.argmax()]),
            "nearest_distance": float(matrix_OO[row, others.argmax()]),
            "equally_near": int(others.sum()),
            "seeds": max(len(matrices.by_seed), 1) if seed == MEAN else 1,
        }
        for row, (name, others) in enumerate(zip(matrices.names, nearest(matrix_OO), strict=True))
    ]


def _shares(matrices: _Matrices) -> list[dict]:
    """The single row of `OBJECTIVE_FAMILIES`, or none if no two objectives share a family."""
    families = np.array([family_of(name) for name in matrices.names])
    related = np.array([(families == family).sum() > 1 and family != "" for family in families])
    if not related.any():
        return []
    neighbours = nearest(matrices.mean_OO)
    share = _share(families, related, neighbours)
    rng = stream("objective-families", *matrices.names)
    dealt = [rng.permutation(len(families)) for _ in range(_PERMUTATIONS)]
    reached = sum(_share(families[order], related[order], neighbours) >= share - 1e-12 for order in dealt)
    seeds = [_share(families, related, nearest(matrix)) for matrix in matrices.by_seed.values()]
    low, high = wilson(share, int(related.sum()))
    return [
        {
            "value": share,
            "low": min(low, *seeds, share),
            "high": max(high, *seeds, share),
            "baseline": chance(families[related].tolist(), len(families)),
            "p": (1 + int(reached)) / (1 + _PERMUTATIONS),
            "count": int(related.sum()),
            "seeds": max(len(matrices.by_seed), 1),
        }
    ]


def _share(families: np.ndarray, related: np.ndarray, neighbours_OO: np.ndarray) -> float:
    """Share of objectives whose nearest neighbour is a relative; ties count by their share of relatives."""
    same_OO = families[:, None] == families[None]
    hits = (same_OO & neighbours_OO).sum(axis=1) / neighbours_OO.sum(axis=1)
    return float(hits[related].mean())


def chance(families: list[str], num: int) -> float:
    r"""Expected share if families are assigned at random to the `num` objectives.

    It is $\sum_f n_f (n_f - 1) / (n (O - 1))$, where $n_f$ are the sizes of the families with relatives and $n$ is
    their sum.
    """
    sizes = [families.count(family) for family in set(families)]
    return sum(size * (size - 1) for size in sizes) / (len(families) * (num - 1))
