"""What streaming measures share that keep plain sums, each under a name."""

from collections.abc import Iterator, Sequence

import numpy as np

from infoflow.flow import Measure


class SummedMeasure(Measure):
    """A measure whose state is a dictionary of arrays that add up over batches, shards and processes."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}

    def _add(self, name: str, array: np.ndarray) -> None:
        self._sums[name] = self._sums[name] + array if name in self._sums else array

    def _add_layers(self, name: str, layers: Sequence[np.ndarray]) -> None:
        """One array for each layer: a pruned model's layers may differ in their number of heads."""
        for number, array in enumerate(layers):
            self._add(f"{name}.{number}", array)

    def _layers(self, name: str) -> list[np.ndarray]:
        """What `_add_layers` summed; empty where nothing was."""
        found: list[np.ndarray] = []
        while f"{name}.{len(found)}" in self._sums:
            found.append(self._sums[f"{name}.{len(found)}"])
        return found

    def merge(self, other: "SummedMeasure") -> None:
        for name, array in other._sums.items():
            self._add(name, array)

    def state_dict(self) -> dict[str, np.ndarray]:
        return dict(self._sums)

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = dict(state)


def each_head(layers: Sequence[np.ndarray]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Layer, head and the head's sums (block, ...) of arrays (block, head, ...)."""
    for layer, sums in enumerate(layers):
        for head in range(sums.shape[1]):
            yield layer, head, sums[:, head]
