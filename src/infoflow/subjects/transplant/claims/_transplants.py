"""Readings of fresh models with transplanted heads: how far one variant's loss lies below another's."""

# R bootstrap replicates, P points of a learning curve; rows of numbers hold the estimate first: (1 + R, ...)

import numpy as np

from infoflow.findings._model_group import TRANSLATION, Absent
from infoflow.findings._table import Reading, SeedRows, Table
from infoflow.heads import TRANSPLANT_CURVES, log_mean

WAYS = ("heads that learn on", "frozen heads")
"""Whether the transplanted heads change."""


def gain(slower: str, faster: str) -> Reading:
    """Held-out loss of the variant `slower` minus that of `faster`, at equal updates, in nats per token.

    The four numbers are means over the whole curve (over the logarithm of updates) for `WAYS`, then values at the last
    update for `WAYS`; NaN for a method that was not trained. Random draws are averaged, and sentences are paired.
    """
    table = Table(TRANSPLANT_CURVES.name, TRANSLATION, needs=("arm", "frozen", "draw", "step"))
    return table.where(metric="loss").reduce(_gains, slower=slower, faster=faster)


def _gains(rows: SeedRows, slower: str, faster: str) -> np.ndarray:
    found: dict[bool, tuple[np.ndarray, np.ndarray]] = {}
    for frozen in (False, True):
        arms = [_curve(rows, arm, frozen) for arm in (slower, faster)]
        if all(one is not None for one in arms):
            found[frozen] = _gap(*(one for one in arms if one is not None))
    if not found:
        raise Absent(f"transplant_curves has no model with {slower} beside {faster} heads")
    common = min(len(over) for over, _ in found.values())
    missing = np.full((common, 2), np.nan)
    both = [np.stack(found[f], axis=1)[:common] if f in found else missing for f in (False, True)]
    return np.stack([both[0][:, 0], both[1][:, 0], both[0][:, 1], both[1][:, 1]], axis=1)


def _gap(first: tuple[list[int], np.ndarray], second: tuple[list[int], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The gap over the curve and at its end, (1 + R,) each."""
    (steps, slow_RP), (others, fast_RP) = first, second
    if steps != others:
        raise Absent("transplant_curves has curves with different points: run the study again with one schedule")
    common = min(len(slow_RP), len(fast_RP))
    gap_RP = slow_RP[:common] - fast_RP[:common]
    return log_mean(steps, gap_RP), gap_RP[:, -1]


def _curve(rows: SeedRows, arm: str, frozen: bool) -> tuple[list[int], np.ndarray] | None:
    """Steps from 1 on and their losses, (1 + R, P), averaged over draws; None without such a model."""
    frame = rows.frame
    own = rows.at((frame["arm"] == arm) & (frame["frozen"] == frozen) & (frame["step"] > 0))
    if own.frame.empty:
        return None
    draws = [SeedRows(one.frame.sort_values("step"), one.number) for _, one in own.groups("draw")]
    steps = [[int(step) for step in one.frame["step"]] for one in draws]
    if any(one != steps[0] for one in steps):
        raise Absent(f"transplant_curves has curves of {arm} heads with different points")
    common = min(len(one.numbers) for one in draws)
    return steps[0], np.mean([one.numbers[:common] for one in draws], axis=0)
