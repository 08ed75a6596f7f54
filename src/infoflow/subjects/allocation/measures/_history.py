"""A recording over time: sums of each window, and losses at its ends."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# G targets (a set and a term of the loss), C cells, P parts, W windows

PARAMETER_FIGURES = ("helped", "hurt", "zero", "alternated", "top_share")
"""Shares of the parameters in a chord; `top_share`: the share of the largest 1 % of |A| in the sum of |A|."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chord:
    """One chord, with all numbers on the CPU."""

    start: int  # updates before it
    end: int
    sums_GPC: np.ndarray  # allocations of each part, which sum to the allocation on the whole set
    loss_before_G: np.ndarray
    loss_after_G: np.ndarray
    parameters: np.ndarray  # PARAMETER_FIGURES of the tracked target; NaN where not measured

    @property
    def sums_GC(self) -> np.ndarray:
        return self.sums_GPC.sum(axis=1)

    @property
    def residual_G(self) -> np.ndarray:
        """Loss change minus the sum of the allocation."""
        return self.loss_after_G - self.loss_before_G - self.sums_GPC.sum(axis=(1, 2))


class History:
    """Windows of equal numbers of chords, and totals of each part over the whole run."""

    def __init__(self, targets: int, parts: int, cells: int, chords_per_window: int) -> None:
        self._per_window = chords_per_window
        self.totals_GPC = np.zeros((targets, parts, cells))
        self._windows: dict[str, list[np.ndarray]] = {name: [] for name in _FIELDS}
        self._open = 0  # chords in the last window

    def add(self, chord: Chord) -> None:
        """Add a chord to the last window, or start a new one."""
        self.totals_GPC += chord.sums_GPC
        ends = np.array([chord.start, chord.end], dtype=float)
        losses = np.stack([chord.loss_before_G, chord.loss_after_G])
        residuals = np.abs(chord.residual_G)
        known = np.isfinite(chord.parameters)
        figures = np.stack([np.where(known, chord.parameters, 0.0), known.astype(float)])
        if self._open == 0:
            new = (ends, losses, chord.sums_GC, residuals, figures, np.array(1.0))
            for name, value in zip(_FIELDS, new, strict=True):
                self._windows[name].append(value)
        else:
            last = {name: values[-1] for name, values in self._windows.items()}
            last["ends"][1], last["losses"][1] = ends[1], losses[1]
            last["sums"] += chord.sums_GC
            last["residuals"] += residuals
            last["figures"] += figures
            last["chords"] += 1.0
        self._open = (self._open + 1) % self._per_window

    @property
    def completes_window(self) -> bool:
        """Whether the next chord is the last of its window."""
        return self._open == self._per_window - 1

    def __len__(self) -> int:
        return len(self._windows["ends"])

    @property
    def ends_W2(self) -> np.ndarray:
        return np.array(self._windows["ends"]).reshape(-1, 2).astype(np.int64)

    @property
    def losses_W2G(self) -> np.ndarray:
        return np.array(self._windows["losses"])

    @property
    def sums_WGC(self) -> np.ndarray:
        return np.array(self._windows["sums"])

    @property
    def mean_residuals_WG(self) -> np.ndarray:
        return np.array(self._windows["residuals"]) / np.array(self._windows["chords"])[:, None]

    @property
    def figures_WF(self) -> np.ndarray:
        """Means over the chords of each window, in the order of `PARAMETER_FIGURES`."""
        sums = np.array(self._windows["figures"])
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[:, 0] / np.where(sums[:, 1] == 0, np.nan, sums[:, 1])

    def state(self) -> dict[str, Tensor]:
        windows = {name: torch.from_numpy(np.array(values)) for name, values in self._windows.items() if values}
        return {**windows, "totals": torch.from_numpy(self.totals_GPC.copy()), "open": torch.tensor(self._open)}

    def load(self, state: dict[str, Tensor]) -> None:
        self.totals_GPC = state["totals"].numpy().copy()
        self._open = int(state["open"])
        for name in _FIELDS:
            self._windows[name] = [value.copy() for value in state[name].numpy()] if name in state else []
        # An element of an array is not an array: the sums continue in place.
        self._windows["chords"] = [np.array(value) for value in self._windows["chords"]]


_FIELDS = ("ends", "losses", "sums", "residuals", "figures", "chords")
