"""heads:M6. Order of importance against the order of what each head's own ablation costs."""

from .._ablated_heads import MATTERS, RemovalCurve
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, untrained
from .._sources import SIXTEEN_HEADS

READS: dict[str, Reading] = {
    "importance": RemovalCurve(objective="translation", order="importance"),
    "oracle": RemovalCurve(objective="translation", order="oracle"),
}


def test(curves: Curves) -> list[Condition]:
    gap = (curves["oracle"] - curves["importance"])[:, 1:]
    return [
        Condition(
            name="mean loss over 20 to 80 % of the heads removed: in order of single ablations less in order of "
            "importance",
            values=gap.mean(axis=1, keepdims=True),
            labels=["all shares"],
            threshold=MATTERS,
            unit="nats per token",
        )
    ]


FINDING = Finding(
    id="heads:M6",
    claim="Importance by gradient orders heads better for removal than what each one's ablation costs alone.",
    source=SIXTEEN_HEADS,
    published="the curve by importance lies above the one by single ablations; no number is given",
    statistic="area between the two curves of the loss over 20 to 80 % of all heads removed, above .01 nats per token",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="a random order for the order of importance",
            reads={**READS, "importance": RemovalCurve(objective="translation", order="random", draw=0)},
        ),
        Control(name="untrained model", reads=untrained(READS)),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
