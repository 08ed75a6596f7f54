"""What streaming measures share that keep plain sums, each under a name."""

import numpy as np

from infoflow.flow import Measure
from infoflow.models import Model

from ._head_sets import uneven_heads


class SummedMeasure(Measure):
    """A measure whose state is a dictionary of arrays that add up over batches, shards and processes."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}

    def refusal(self, model: Model) -> str | None:
        return uneven_heads(model)

    def _add(self, name: str, array: np.ndarray) -> None:
        self._sums[name] = self._sums[name] + array if name in self._sums else array

    def merge(self, other: "SummedMeasure") -> None:
        for name, array in other._sums.items():
            self._add(name, array)

    def state_dict(self) -> dict[str, np.ndarray]:
        return dict(self._sums)

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = dict(state)
