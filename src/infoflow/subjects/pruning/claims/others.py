"""Claim about pruned models that are trained on: heads:H2."""

import numpy as np

from infoflow.findings._condition import Condition, exceeds
from infoflow.findings._finding import Control, Curves, claim
from infoflow.findings._model_group import TRANSLATION
from infoflow.findings._sources import OURS
from infoflow.findings._table import Reading

from ._recovered_models import RECOVERED, RECOVERED_ALL, RECOVERED_RANDOM, UNPRUNED, recovered_gaps

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
