"""Claims about heads: H1, H2."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, claim
from .._model_group import TRANSLATION
from .._recovered_models import RECOVERED, RECOVERED_ALL, RECOVERED_RANDOM, UNPRUNED, recovered_gaps
from .._sources import OURS
from .._table import Reading
from .._transplants import WAYS, gain

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


THAN = {UNPRUNED: "the converged model", RECOVERED_ALL: "all heads", RECOVERED_RANDOM: "as many random heads"}


_H2_READS: dict[str, Reading] = {"gaps": recovered_gaps(than=tuple(THAN))}


LOST = (0.3, 0.03)


_UNITS = ("BLEU", "nats per token")


@claim(
    "heads:H2",
    "A translation encoder that is trained further with the few heads that gates left is as good as with all "
    "heads, and better than with as many random ones.",
    source=OURS,
    published=f"none for models trained further, so the threshold, {LOST[0]} BLEU, is ours: twice the cost of "
    "the 10 of "
    "48 heads that gates left (heads:V1)",
    statistic="at the step of a gate sweep that left closest to 10 of 48 encoder heads (fewer than half), trained "
    "further without gates: BLEU (without it: the loss) minus that of the converged model is above "
    f"−{LOST[0]} ({LOST[1]} nats per token), so is BLEU minus that with all heads, and BLEU minus that with "
    "as many random heads is above 0; the last two were trained further for as many updates all, from the "
    "converged model",
    reads=_H2_READS,
    controls=(
        Control(
            name="as many random heads, trained on for as many updates",
            reads={"gaps": recovered_gaps(RECOVERED_RANDOM, than=(UNPRUNED, RECOVERED_ALL, RECOVERED))},
        ),
    ),
    learned=(TRANSLATION,),
)
def h2(curves: Curves) -> list[Condition]:
    """A translation encoder with few heads left, trained further."""
    gaps = np.split(curves["gaps"], 2, axis=1)
    metric = int(np.isnan(gaps[0][0]).all())  # the loss if BLEU was not scored
    return [
        exceeds(
            f"quality beyond that of {name}{'' if way == UNPRUNED else ', trained on for as many updates'}",
            gaps[metric][:, at : at + 1],
            0.0 if way == RECOVERED_RANDOM else -LOST[metric],
            _UNITS[metric],
        )
        for at, (way, name) in enumerate(THAN.items())
    ]
