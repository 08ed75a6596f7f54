"""heads:H2. A translation encoder with few heads left, trained on."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._recovered_models import RECOVERED, RECOVERED_ALL, RECOVERED_RANDOM, UNPRUNED, recovered_gaps
from .._sources import OURS
from .._table import Reading

THAN = {UNPRUNED: "the converged model", RECOVERED_ALL: "all heads", RECOVERED_RANDOM: "as many random heads"}
READS: dict[str, Reading] = {"gaps": recovered_gaps(than=tuple(THAN))}
LOST = (0.3, 0.03)
"""What a model may be worse than with all its heads, in BLEU or nats per token."""
_UNITS = ("BLEU", "nats per token")


def test(curves: Curves) -> list[Condition]:
    gaps = np.split(curves["gaps"], 2, axis=1)
    metric = int(np.isnan(gaps[0][0]).all())  # the loss where BLEU was not scored
    return [
        exceeds(
            f"quality beyond that of {name}{'' if way == UNPRUNED else ', trained on for as many updates'}",
            gaps[metric][:, at : at + 1],
            0.0 if way == RECOVERED_RANDOM else -LOST[metric],
            _UNITS[metric],
        )
        for at, (way, name) in enumerate(THAN.items())
    ]


FINDING = Finding(
    id="heads:H2",
    claim="A translation encoder with the few heads that gates left, trained on, is as good as with all of them, and "
    "better than with as many random ones.",
    source=OURS,
    published=(
        "none of models that were trained on, so the threshold, "
        f"{LOST[0]} BLEU, is ours: twice what 10 of 48 heads cost as gates left them (heads:V1)"
    ),
    statistic=(
        "at the point of a sweep of learned gates that left nearest to 10 of 48 encoder heads (fewer than half), "
        "trained on without gates: BLEU (without it: the loss) beyond that of the converged model above "
        f"−{LOST[0]} ({LOST[1]} nats per token), beyond that of all heads above the same, and beyond that of "
        "as many random heads above 0; the last two trained on for as many updates in all, from the converged model"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="as many random heads, trained on for as many updates",
            reads={"gaps": recovered_gaps(RECOVERED_RANDOM, than=(UNPRUNED, RECOVERED_ALL, RECOVERED))},
        ),
    ),
    learned=(TRANSLATION,),
)
