"""Claim about transplanted heads: heads:H1."""

import numpy as np

from infoflow.findings._condition import Condition, exceeds
from infoflow.findings._finding import Control, Curves, claim
from infoflow.findings._model_group import TRANSLATION
from infoflow.findings._sources import OURS
from infoflow.findings._table import Reading

from ._transplants import WAYS, gain

_H1_READS: dict[str, Reading] = {"gain": gain("random", "specialised")}


_WHEN = ("over the whole learning curve", "at its end")


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
    reads=_H1_READS,
    controls=(
        Control(
            name="shuffled specialised heads against the fresh model's own",
            reads={"gain": gain("none", "shuffled")},
        ),
        Control(
            name="shuffled specialised heads instead of the specialised ones",
            reads={"gain": gain("random", "shuffled")},
            decisive=False,
        ),
    ),
    learned=(TRANSLATION,),
)
def h1(curves: Curves) -> list[Condition]:
    """Specialised heads of a trained translation encoder in a fresh model."""
    columns = [(f"{when}, {way}", at) for at, (when, way) in enumerate((when, way) for when in _WHEN for way in WAYS)]
    return [
        exceeds(
            f"held-out loss with random heads beyond that with specialised ones, {name}",
            curves["gain"][:, at : at + 1],
            0.0,
            "nats per token",
        )
        for name, at in columns
        if not np.isnan(curves["gain"][0, at])
    ]
