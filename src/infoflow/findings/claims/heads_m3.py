"""heads:M3. Heads of the translation model ablated in the order of their importance, without training."""

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._head_numbers import MATTERS, SHARES, removal_curve
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, untrained

CHEAP = 0.05  # nats per token

READS: dict[str, Reading] = {
    "importance": removal_curve("importance"),
    "random": removal_curve("random"),
}


def test(curves: Curves) -> list[Condition]:
    importance, random = curves["importance"], curves["random"]
    return [
        stays_below(
            "rise of the loss with a fifth of the heads removed",
            importance[:, 1:2] - importance[:, :1],
            CHEAP,
            "nats per token",
            alone=False,  # nothing costs an untrained model anything: it counts with what other heads cost
        ),
        exceeds(
            "loss in random order less that in order of importance",
            (random - importance)[:, 1:4],
            MATTERS,
            "nats per token",
            [f"{share:.0%}" for share in SHARES[1:4]],
        ),
    ]


FINDING = Finding(
    id="heads:M3",
    claim="A large share of the heads can be removed without training, if the least important go first.",
    source=SIXTEEN_HEADS,
    published="about 20 % (WMT), 40 % (MNLI), 50 % (CoLA, MRPC) and 60 % (SST-2) go at no significant cost",
    statistic=(
        f"removing 20 % of all heads costs less than {CHEAP} nats per predicted token, and at 20, 40 and 60 % the "
        f"order of importance costs less than random orders, by over {MATTERS}"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="one random order for the order of importance",
            reads={**READS, "importance": removal_curve("random", draw=0)},
        ),
        Control(name="untrained model", reads=untrained(READS)),
    ),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
