"""heads:M6. Order of importance against the order of what each head's own ablation costs."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import MATTERS, removal_curve
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, untrained

READS: dict[str, Reading] = {
    "importance": removal_curve("importance"),
    "oracle": removal_curve("oracle"),
}


def test(curves: Curves) -> list[Condition]:
    gap = (curves["oracle"] - curves["importance"])[:, 1:]
    return [
        exceeds(
            "mean loss over 20 to 80 % of the heads removed: in order of single ablations less in order of importance",
            gap.mean(axis=1, keepdims=True),
            MATTERS,
            "nats per token",
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
            reads={**READS, "importance": removal_curve("random", draw=0)},
        ),
        Control(name="untrained model", reads=untrained(READS)),
    ),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
