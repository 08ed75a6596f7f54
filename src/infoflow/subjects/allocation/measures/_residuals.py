"""Residuals between sums of allocations and the change of the loss, for the rule in use and for simpler ones."""

import numpy as np
import torch
from torch import Tensor

from ._rules import RULES, Rule

_MAIN = len(RULES)  # row of the rule in use


class Residuals:
    """Sums over chords, float64 (rule, target)."""

    def __init__(self, targets: int) -> None:
        shape = (_MAIN + 1, targets)
        self._sums = {name: np.zeros(shape) for name in ("count", "absolute", "largest", "signed", "change", "moved")}

    def add(self, residuals: dict[Rule | None, np.ndarray], change_G: np.ndarray) -> None:
        """Count one chord: the residuals of each available rule (None: the rule in use) and the change."""
        for rule, residual_G in residuals.items():
            row = _MAIN if rule is None else RULES.index(rule)
            sums = self._sums
            sums["count"][row] += 1
            sums["absolute"][row] += np.abs(residual_G)
            sums["largest"][row] = np.maximum(sums["largest"][row], np.abs(residual_G))
            sums["signed"][row] += residual_G
            sums["change"][row] += change_G
            sums["moved"][row] += np.abs(change_G)

    def summary(self, rule: Rule | None, target: int) -> dict[str, float]:
        """Statistics of one rule (None: the one in use); empty if it was never available."""
        row = _MAIN if rule is None else RULES.index(rule)
        count, absolute, largest, signed, change, moved = (sums[row, target] for sums in self._sums.values())
        if not count:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                "chords": float(count),
                "mean residual": float(absolute / count),
                "largest residual": float(largest),
                "residual of the total": float(np.abs(signed / change)),
                "residual of all changes": float(np.abs(signed) / moved),
            }

    def state(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values.copy()) for name, values in self._sums.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        self._sums = {name: state[name].numpy().copy() for name in self._sums}


def free_residuals(
    change_G: np.ndarray, first_G: np.ndarray | None, middle_G: np.ndarray | None, last_G: np.ndarray | None
) -> dict[Rule | None, np.ndarray]:
    r"""Residuals of simple rules on a chord, from the slopes $g \cdot \Delta$ at its start, middle and end."""
    found: dict[Rule | None, np.ndarray] = {}
    if first_G is not None:
        found["first-order"] = change_G - first_G
    if middle_G is not None:
        found["midpoint"] = change_G - middle_G
    if first_G is not None and last_G is not None:
        found["trapezoid"] = change_G - (first_G + last_G) / 2
        if middle_G is not None:
            found["simpson"] = change_G - (first_G + 4 * middle_G + last_G) / 6
    return found
