"""heads:M3. Heads of the translation model ablated in the order of their importance, without training."""

from .._ablated_heads import MATTERS, SHARES, RemovalCurve
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, untrained
from .._sources import SIXTEEN_HEADS

CHEAP = 0.05  # nats per token

READS: dict[str, Reading] = {
    "importance": RemovalCurve(objective="translation", order="importance"),
    "random": RemovalCurve(objective="translation", order="random"),
}


def test(curves: Curves) -> list[Condition]:
    importance, random = curves["importance"], curves["random"]
    return [
        Condition(
            name="rise of the loss with a fifth of the heads removed",
            values=importance[:, 1:2] - importance[:, :1],
            labels=["20 %"],
            threshold=CHEAP,
            unit="nats per token",
            side="below",
            alone=False,  # nothing costs an untrained model anything: it counts with what other heads cost
        ),
        Condition(
            name="loss in random order less that in order of importance",
            values=(random - importance)[:, 1:4],
            labels=[f"{share:.0%}" for share in SHARES[1:4]],
            threshold=MATTERS,
            unit="nats per token",
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
            reads={**READS, "importance": RemovalCurve(objective="translation", order="random", draw=0)},
        ),
        Control(name="untrained model", reads=untrained(READS)),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
