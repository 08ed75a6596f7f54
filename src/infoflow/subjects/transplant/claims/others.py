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
    "Specialised heads of a trained encoder, put into a fresh model, let it learn faster and better than random heads "
    "of the same model put in the same way.",
    source=OURS,
    published="none: no experiment of this kind is known to us, so the threshold, 0, is ours",
    statistic="held-out loss of fresh translation models that hold random heads of a trained model, less that of "
    "models that hold as many specialised heads of it in the same layers, at equal updates, first weights and "
    "batches: above 0 as the mean over the logarithm of updates and at the last update, both where the heads learn on "
    "and where they are frozen, as far as both were trained",
    reads=_H1_READS,
    controls=(
        Control(
            name="shuffled specialised heads against the fresh model's own",
            reads={"gain": gain("none", "shuffled")},
        ),
        Control(
            name="shuffled specialised heads in place of the specialised ones",
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
