"""Whether parameters move against the gradient of now, of some updates ago, or of some updates ahead."""

from collections import deque

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from ._cell_groups import CellGroups
from ._cells import Cells
from ._gradient import FlatParameters

# K lags, from −lags to +lags; N groups of any level


class Lags:
    r"""Mean over chords of the cosine between a group's movement and the negative gradient at other chords' starts.

    $$ c_g(\tau) = \frac{1}{T_\tau} \sum_t \frac{-\langle \Delta_t, g_{t-\tau} \rangle_g}
       {\lVert \Delta_t \rVert_g \lVert g_{t-\tau} \rVert_g} $$

    | symbol | here | space |
    |---|---|---|
    | $\Delta_t$, $g_t$ | movement in chord t, gradient of the evaluated loss at its start; entries of group g | real |
    | $\tau$ | chords between them; above 0: the gradient is the earlier one | −lags to lags |
    | $T_\tau$ | chords in which neither is 0 in the group | |
    | $c_g(\tau)$ | `cosines_KN` | [−1, 1]; 0 where they have nothing to do with each other |

    A group that moves against the gradient has c(0) > 0 and helps to first order. One that lags behind (momentum in a
    ravine, where the gradient changes sign) has its largest c at some τ > 0, and hurts where c(0) < 0; one that
    overshoots has c(−1) < 0: the next gradient points the other way.

    Memory: movements and gradients of `lags` chords, 2 × lags copies of the weights.

    Source: [@lan2019lca] suspect a phase lag behind layers that hurt; the cosine is ours.
    """

    def __init__(self, flat: FlatParameters, cells: Cells, levels: CellGroups, lags: int) -> None:
        self._flat, self._cells, self._matrix, self._reach = flat, cells, levels.matrix, lags
        self._moves: deque[tuple[Tensor, np.ndarray]] = deque(maxlen=lags + 1)  # newest first, with norms (N,)
        self._gradients: deque[tuple[Tensor, np.ndarray]] = deque(maxlen=lags + 1)
        self.sums_KN = np.zeros((2 * lags + 1, len(levels.groups)))
        self.counts_KN = np.zeros(self.sums_KN.shape, dtype=np.int64)

    def add(self, gradient: Float[Tensor, " parameter"], move: Float[Tensor, " parameter"]) -> None:
        """Take in one chord: the gradient at its start and Δ, which are kept and must not change."""
        self._gradients.appendleft((gradient, self._norms(gradient)))
        self._moves.appendleft((move, self._norms(move)))
        for lag, earlier in enumerate(self._gradients):
            self._count(lag, self._moves[0], earlier)
        for lag in range(1, len(self._moves)):
            self._count(-lag, self._moves[lag], self._gradients[0])

    @property
    def lags(self) -> range:
        """The lags of the rows of `cosines_KN`."""
        return range(-self._reach, self._reach + 1)

    @property
    def cosines_KN(self) -> Float64[np.ndarray, "lag group"]:
        """Means; NaN where no chord counts."""
        return self.sums_KN / np.where(self.counts_KN == 0, np.nan, self.counts_KN)

    def state(self) -> dict[str, Tensor]:
        state = {"sums": torch.from_numpy(self.sums_KN.copy()), "counts": torch.from_numpy(self.counts_KN.copy())}
        for name, kept in (("move", self._moves), ("gradient", self._gradients)):
            for place, (vector, norms) in enumerate(kept):
                state |= {f"{name} {place}": vector, f"{name} norms {place}": torch.from_numpy(norms.copy())}
        return state

    def load(self, state: dict[str, Tensor]) -> None:
        self.sums_KN, self.counts_KN = state["sums"].numpy().copy(), state["counts"].numpy().copy()
        device = self._flat.parameters[0].device
        for name, kept in (("move", self._moves), ("gradient", self._gradients)):
            kept.clear()
            while (place := len(kept)) <= self._reach and f"{name} {place}" in state:
                vector, norms = state[f"{name} {place}"], state[f"{name} norms {place}"]
                kept.append((vector.to(device, copy=True), norms.numpy().copy()))

    def _count(self, lag: int, move: tuple[Tensor, np.ndarray], gradient: tuple[Tensor, np.ndarray]) -> None:
        scale = move[1] * gradient[1]
        known = scale > 0
        dots = self._sums(move[0] * gradient[0])
        self.sums_KN[lag + self._reach, known] -= dots[known] / scale[known]
        self.counts_KN[lag + self._reach] += known

    def _norms(self, vector: Tensor) -> np.ndarray:
        return np.sqrt(self._sums(vector.square()))

    def _sums(self, vector: Tensor) -> np.ndarray:
        return self._matrix @ self._cells.sums(self._flat.views(vector)).cpu().numpy()
