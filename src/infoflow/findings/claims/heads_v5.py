"""heads:V5. Learned gates at the end of the sweep of penalties."""

from .._condition import SHARE, Condition, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._pruned_models import undecided_gates
from .._sources import HEAVY_LIFTING
from .._table import Reading

FEW = 0.05

READS: dict[str, Reading] = {"undecided": undecided_gates()}


def test(curves: Curves) -> list[Condition]:
    return [
        stays_below(
            "share of the gates that are neither 0 nor 1 at the largest penalty",
            curves["undecided"][:, :1],
            FEW,
            "share of gates",
            bounds=SHARE,
            of=int(curves["undecided"][0, 1]),
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
            reads={"undecided": undecided_gates("zero")},
        ),
    ),
    learned=(TRANSLATION,),
)
