"""Heads as points, so that near points attend alike."""

import inspect

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from infoflow.foundation import UserError


def head_map(distances: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Places heads in a plane by metric multidimensional scaling of their distances.

    Args:
        distances: The table `head_distance` of one model; each stack and kind gets a map of its own.
        seed: Of the starting points.

    Returns:
        Columns stack, kind, layer, head, x, y, stress (normalised, 0 = distances kept exactly).

    Raises:
        UserError: Distances are missing, or two models are in one table.

    Source: [@clark2019], the authors' code: n_init 5, max_iter 1000, eps 1e-10.
    """
    maps = [
        _one_map(part["stack"].iloc[0], part["kind"].iloc[0], part, seed)
        for _, part in distances.groupby(["stack", "kind"])
    ]
    columns = ["stack", "kind", "layer", "head", "x", "y", "stress"]
    return pd.concat(maps, ignore_index=True) if maps else pd.DataFrame(columns=columns)


def _one_map(stack: object, kind: object, part: pd.DataFrame, seed: int) -> pd.DataFrame:
    ends = [list(zip(part[f"layer_{end}"], part[f"head_{end}"], strict=True)) for end in "ab"]
    heads = sorted({*ends[0], *ends[1]})
    if len(part) != len(heads) * (len(heads) - 1) // 2:
        raise UserError(
            f"distances must hold each pair of the {len(heads)} heads of {stack} {kind}-attention once: "
            f"{len(heads) * (len(heads) - 1) // 2} rows. Got {len(part)}. Give the table of one model."
        )
    place = {head: index for index, head in enumerate(heads)}
    matrix = np.zeros((len(heads), len(heads)))
    a, b = ([place[head] for head in end] for end in ends)
    matrix[a, b] = matrix[b, a] = part["distance"]
    points, stress = _scale(matrix, seed)
    layer, head = np.array(heads).T
    return pd.DataFrame(
        {"stack": stack, "kind": kind, "layer": layer, "head": head, "x": points[:, 0], "y": points[:, 1]}
    ).assign(stress=stress)


def _scale(matrix: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    from sklearn.manifold import MDS  # takes long to import

    # scikit-learn 1.8 renamed `metric` to `metric_mds` and `dissimilarity` to `metric`.
    renamed = "metric_mds" in inspect.signature(MDS.__init__).parameters
    names = (
        {"metric_mds": True, "metric": "precomputed"} if renamed else {"metric": True, "dissimilarity": "precomputed"}
    )
    if "init" in inspect.signature(MDS.__init__).parameters:
        names["init"] = "random"
    scaling = MDS(n_init=5, max_iter=1000, eps=1e-10, random_state=seed, normalized_stress=False, **names)
    with threadpool_limits(limits=1):
        points = scaling.fit_transform(matrix)
    whole = (matrix**2).sum() / 2
    return points, float(np.sqrt(scaling.stress_ / whole)) if whole else 0.0
