"""Claim about transplanted heads: heads:H1."""

# R bootstrap replicates, P points of a learning curve; rows of numbers hold the estimate first: (1 + R, ...)

from itertools import product

import numpy as np

from infoflow.findings._finding import Condition, Control, Curves, claim, exceeds
from infoflow.findings._model_group import TRANSLATION, Absent
from infoflow.findings._sources import OURS
from infoflow.findings._table import Reading, SeedRows, Table
from infoflow.heads import TRANSPLANT_CURVES, log_mean


def gain(slower: str, faster: str) -> Reading:
    """Held-out loss of the variant `slower` minus that of `faster`, at equal updates, in nats per token.

    The four numbers are means over the whole curve (over the logarithm of updates) for `WAYS`, then values at the last
    update for `WAYS`; NaN for a method that was not trained. Random draws are averaged, and sentences are paired.
    """
    table = Table(TRANSPLANT_CURVES.name, TRANSLATION, needs=("arm", "frozen", "draw", "step"))
    return table.where(metric="loss").reduce(_gains, slower=slower, faster=faster)


def _curve(rows: SeedRows, variant: str, frozen: bool) -> tuple[list[int], np.ndarray] | None:
    """Steps from 1 on and their losses, (1 + R, P), averaged over draws; None without such a model."""
    frame = rows.frame
    own = rows.at((frame["arm"] == variant) & (frame["frozen"] == frozen) & (frame["step"] > 0))
    if own.frame.empty:
        return None
    draws = [SeedRows(one.frame.sort_values("step"), one.number) for _, one in own.groups("draw")]
    steps = [[int(step) for step in one.frame["step"]] for one in draws]
    if any(one != steps[0] for one in steps):
        raise Absent(f"transplant_curves has curves of {variant} heads with different points")
    common = min(len(one.numbers) for one in draws)
    return steps[0], np.mean([one.numbers[:common] for one in draws], axis=0)


def _gains(rows: SeedRows, slower: str, faster: str) -> np.ndarray:
    found: dict[bool, tuple[np.ndarray, np.ndarray]] = {}
    for frozen in (False, True):
        slow, fast = (_curve(rows, variant, frozen) for variant in (slower, faster))
        if slow is None or fast is None:
            continue
        if slow[0] != fast[0]:
            raise Absent("transplant_curves has curves with different points: run the study again with one schedule")
        common = min(len(slow[1]), len(fast[1]))
        gap_RP = slow[1][:common] - fast[1][:common]
        found[frozen] = log_mean(slow[0], gap_RP), gap_RP[:, -1]
    if not found:
        raise Absent(f"transplant_curves has no model with both {slower} and {faster} heads")
    common = min(len(over) for over, _ in found.values())
    missing = np.full((common, 2), np.nan)
    both = [np.stack(found[f], axis=1)[:common] if f in found else missing for f in (False, True)]
    return np.stack([both[0][:, 0], both[1][:, 0], both[0][:, 1], both[1][:, 1]], axis=1)


_WHEN = ("over the whole learning curve", "at its end")
WAYS = ("heads that learn on", "frozen heads")
"""Whether the transplanted heads keep learning in the fresh model or are frozen."""


@claim(
    "heads:H1",
    "A fresh model learns faster and better with specialised heads of a trained encoder than with random heads "
    "of the same encoder.",
    source=OURS,
    published="none: we know of no experiment of this kind, so the threshold, 0, is ours",
    statistic="held-out loss of fresh translation models with random heads of a trained model, minus that of models "
    "with as many of its specialised heads in the same layers, at equal updates, initial weights and "
    "batches: above 0 both as the mean over the logarithm of updates and at the last update, whether the "
    "heads keep learning or are frozen (where both were trained)",
    reads={"gain": gain("random", "specialised")},
    controls=(
        Control(
            name="shuffled specialised heads against the fresh model's own", reads={"gain": gain("none", "shuffled")}
        ),
        Control(
            name="shuffled specialised heads instead of the specialised ones",
            reads={"gain": gain("random", "shuffled")},
            decisive=False,
        ),
    ),
)
def h1(curves: Curves) -> list[Condition]:
    """Conditions on a fresh model with specialised heads of a trained translation encoder."""
    name = "held-out loss with random heads beyond that with specialised ones"
    gains = zip(product(_WHEN, WAYS), np.split(curves["gain"], 4, axis=1), strict=True)
    return [
        exceeds(f"{name}, {when}, {way}", gain, 0.0, "nats per token")
        for (when, way), gain in gains
        if not np.isnan(gain[0, 0])
    ]
