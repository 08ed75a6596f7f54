"""time:T1. The order in which layers settle, of states and of blocks on the final model's own input."""

from .._condition import CORRELATION, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import settling_order
from .._sources import SVCCA_PAPER
from .._table import Reading

KINDS = ("state", "block")


def reads(number: str = "time") -> dict[str, Reading]:
    return {kind: settling_order(CAUSAL, kind, number) for kind in KINDS}


def test(curves: Curves) -> list[Condition]:
    name, unit = "Kendall's tau of depth and time of settling, {}s", "rank correlation"
    return [
        # Of states depth adds up whatever a layer has learned: that alone says nothing.
        exceeds(name.format("state"), curves["state"], 0.6, unit, bounds=CORRELATION, alone=False),
        exceeds(name.format("block"), curves["block"], 0.3, unit, bounds=CORRELATION),
    ]


FINDING = Finding(
    id="time:T1",
    claim="Lower layers settle first.",
    source=SVCCA_PAPER,
    published="networks converge from the bottom up; no number",
    statistic=(
        "debiased CKA to the final model: Kendall's tau of depth and the update from which nine tenths of the way are "
        "done at least .6 over states, and at least .3 over what blocks add on the final model's states, from the "
        "second block on (thresholds ours)"
    ),
    reads=reads(),
    test=test,
    controls=(Control(name="final weights with noise as large as what is left of the way", reads=reads("null_time")),),
    learned=(CAUSAL,),
)
