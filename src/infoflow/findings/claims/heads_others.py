"""Claims about heads: H1, H2."""

import numpy as np

from infoflow.subjects.pruning.claims._recovered_models import (
    RECOVERED,
    RECOVERED_ALL,
    RECOVERED_RANDOM,
    UNPRUNED,
    recovered_gaps,
)
from infoflow.subjects.transplant.claims._transplants import WAYS, gain

from .._condition import Condition, exceeds
from .._finding import Control, Curves, claim
from .._model_group import TRANSLATION
from .._sources import OURS
from .._table import Reading

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


THAN = {UNPRUNED: "the converged model", RECOVERED_ALL: "all heads", RECOVERED_RANDOM: "as many random heads"}


_H2_READS: dict[str, Reading] = {"gaps": recovered_gaps(than=tuple(THAN))}


LOST = (0.3, 0.03)


_UNITS = ("BLEU", "nats per token")


@claim(
    "heads:H2",
    "A translation encoder with the few heads that gates left, trained on, is as good as with all of them, and better "
    "than with as many random ones.",
    source=OURS,
    published="none of models that were trained on, so the threshold, "
    f"{LOST[0]} BLEU, is ours: twice what 10 of 48 heads cost as gates left them (heads:V1)",
    statistic="at the point of a sweep of learned gates that left nearest to 10 of 48 encoder heads (fewer than half), "
    "trained on without gates: BLEU (without it: the loss) beyond that of the converged model above "
    f"−{LOST[0]} ({LOST[1]} nats per token), beyond that of all heads above the same, and beyond that of "
    "as many random heads above 0; the last two trained on for as many updates in all, from the converged model",
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
