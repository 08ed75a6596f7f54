"""Whether a checkpoint lies on the path between its neighbours."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.foundation import UserError


def triangle_ratios(points: ArrayLike) -> Float[np.ndarray, " inner"]:
    r"""\(r_i = (d_{i-1,i} + d_{i,i+1}) / d_{i-1,i+1}\) for every checkpoint between two others.

    1 on a straight path, \(\sqrt 2\) if equal steps are orthogonal, 2 for noise around one point; a checkpoint of
    another run has 8 (measured: causal LM, 3 layers, width 64). Infinite if the neighbours are equal and it differs,
    NaN if all three are equal.

    Args:
        points: (checkpoint, weight), at least three, in order.

    Raises:
        UserError: There are fewer than three.

    >>> triangle_ratios([(0, 0), (3, 4), (6, 0), (9, 4)]).round(3).tolist()
    [1.667, 1.667]
    """
    weights = np.asarray(points, dtype=np.float64)
    if weights.ndim != 2 or len(weights) < 3:
        raise UserError(f"Ratios of triangles need at least three checkpoints of weights. Got shape {weights.shape}.")
    steps = np.linalg.norm(np.diff(weights, axis=0), axis=1)
    across = np.linalg.norm(weights[2:] - weights[:-2], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (steps[:-1] + steps[1:]) / across
