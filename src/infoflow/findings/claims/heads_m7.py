"""heads:M7. Share of heads that can go at each checkpoint; a study that keeps none cannot test it."""

from .._ablated_heads import SeedNumber
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import SIXTEEN_HEADS

TABLE = "prunable_by_update"
READS: dict[str, Reading] = {
    "prunable": SeedNumber(table=TABLE, objective="translation", by="update", order="importance")
}


def test(curves: Curves) -> list[Condition]:
    prunable = curves["prunable"]
    middle = prunable.shape[1] // 2
    return [
        Condition(
            name="rise of the prunable share from the first checkpoint to the middle one",
            values=prunable[:, [middle]] - prunable[:, :1],
            labels=["middle"],
            threshold=0.1,
            unit="share of heads",
        ),
        Condition(
            name="share prunable at the middle checkpoint less three quarters of the last one's",
            values=prunable[:, [middle]] - 0.75 * prunable[:, -1:],
            labels=["middle"],
            threshold=0.0,
            unit="share of heads",
            alone=False,  # a share that never changes has its last value early: it counts with the rise
        ),
    ]


FINDING = Finding(
    id="heads:M7",
    claim="That many heads can go shows early in training.",
    source=SIXTEEN_HEADS,
    published=(
        "IWSLT: from about epoch 10 on, 40 % of the heads can go at 85 to 90 % of the BLEU; in epochs 1 and 2 every "
        "head costs alike"
    ),
    statistic=(
        "largest share of heads, in order of importance, that goes at 90 % of the model's gain over unigrams: over .1 "
        "higher at the middle checkpoint than at the first, and there at three quarters of the last checkpoint's"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="random order",
            reads={"prunable": SeedNumber(table=TABLE, objective="translation", by="update", order="random")},
        ),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
