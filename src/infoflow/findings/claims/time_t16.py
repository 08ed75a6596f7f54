"""time:T16. Effective rank over training."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import rank_course
from .._sources import RAZZHIGAEV
from .._table import Reading

_LEAST = 0.05
READS: dict[str, Reading] = {"moves": rank_course(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    names = ("fall from step 0 to the minimum", "rise from the minimum to a later maximum", "fall from it to the end")
    return [
        exceeds(f"effective rank: {name}", curves["moves"][:, [place]], _LEAST, "ln of the ratio", alone=place == 1)
        for place, name in enumerate(names)
    ]


FINDING = Finding(
    id="time:T16",
    claim="The dimension of the last states falls, rises and falls again.",
    source=RAZZHIGAEV,
    published="collapse in the warm-up, expansion, compression; or a rise and a fall; no common number",
    statistic=(
        "effective rank of the covariance of the last states: a minimum and a later maximum between the first and the "
        "last checkpoint, each move over a twentieth (threshold ours)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="as many random states", reads={"moves": rank_course(CAUSAL, "baseline")}),
        Control(name="step 0 at all checkpoints, resampled", reads={"moves": rank_course(CAUSAL, "noise")}),
    ),
    learned=(CAUSAL,),
)
