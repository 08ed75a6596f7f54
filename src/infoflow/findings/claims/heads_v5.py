"""heads:V5. Learned gates at the end of the sweep of penalties."""

from .._condition import SHARE, Condition
from .._finding import Control, Curves, Finding
from .._pruned_heads import UndecidedGates
from .._reading import Reading
from .._sources import HEAVY_LIFTING

FEW = 0.05

READS: dict[str, Reading] = {"undecided": UndecidedGates(objective="translation")}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="share of the gates that are neither 0 nor 1 at the largest penalty",
            values=curves["undecided"],
            labels=["largest penalty"],
            threshold=FEW,
            unit="share of gates",
            bounds=SHARE,
            side="below",
        )
    ]


FINDING = Finding(
    id="heads:V5",
    claim="Learned gates decide: in the end nearly all of them are 0 or 1.",
    source=HEAVY_LIFTING,
    published="almost all gates are exactly 0 or 1 after training, in words without a number",
    statistic=f"at the largest penalty of the sweep under {FEW:.0%} of the gates evaluate to neither 0 nor 1",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="gates without a penalty",
            reads={"undecided": UndecidedGates(objective="translation", at="zero")},
        ),
    ),
    learned=("translation",),
)
