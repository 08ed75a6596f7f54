"""Number of panels used on the chords of a recording."""

import numpy as np
import torch
from torch import Tensor


class Panels:
    """Sum and maximum over chords of the panels that their residuals needed."""

    def __init__(self) -> None:
        self._chords, self._sum, self.largest = 0, 0, 0

    def add(self, panels: int) -> None:
        """Count one chord."""
        self._chords += 1
        self._sum += panels
        self.largest = max(self.largest, panels)

    @property
    def mean(self) -> float:
        return self._sum / self._chords if self._chords else np.nan

    def state(self) -> dict[str, Tensor]:
        return {"counts": torch.tensor([self._chords, self._sum, self.largest])}

    def load(self, state: dict[str, Tensor]) -> None:
        self._chords, self._sum, self.largest = state["counts"].tolist()
