"""heads:H2. A translation encoder with few heads left, trained on."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._recovered_models import RECOVERED, RECOVERED_ALL, RECOVERED_RANDOM, recovered_gaps
from .._sources import OURS
from .._table import Reading

READS: dict[str, Reading] = {"gaps": recovered_gaps()}
LOST = {"bleu": 0.3, "loss": 0.03}
"""What a model may be worse than with all its heads, in BLEU or nats per token."""
_UNITS = ("BLEU", "nats per token")


def test(curves: Curves) -> list[Condition]:
    gaps = curves["gaps"]
    metric = int(np.isnan(gaps[0, 0]))  # the loss where BLEU was not scored
    whole, chance = gaps[:, 2 * metric : 2 * metric + 1], gaps[:, 2 * metric + 1 : 2 * metric + 2]
    return [
        exceeds("quality beyond that of the converged model", whole, -list(LOST.values())[metric], _UNITS[metric]),
        exceeds("quality beyond that of as many random heads, trained on alike", chance, 0.0, _UNITS[metric]),
    ]


FINDING = Finding(
    id="heads:H2",
    claim="A translation encoder with the few heads that gates left, trained on, is as good as with all of them, and "
    "better than with as many random ones.",
    source=OURS,
    published=(
        "none of models that were trained on; as pruned, 10 of 48 heads at .15 BLEU less (heads:V1), which is where "
        "the threshold comes from"
    ),
    statistic=(
        "at the point of a sweep of learned gates that left nearest to 10 of 48 encoder heads (fewer than half), "
        f"trained on without gates: BLEU beyond that of the converged model above −{LOST['bleu']} (without BLEU: loss, "
        f"{LOST['loss']} nats per token), and beyond that of as many random heads, trained on alike, above 0"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="as many random heads, trained on alike",
            reads={"gaps": recovered_gaps(RECOVERED_RANDOM, RECOVERED)},
        ),
        Control(
            name="all heads, trained on as long",
            reads={"gaps": recovered_gaps(RECOVERED_ALL)},
            decisive=False,
        ),
    ),
    learned=(TRANSLATION,),
)
