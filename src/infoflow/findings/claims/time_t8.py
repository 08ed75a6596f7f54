"""time:T8. How much of learning in context falls into the window in which induction heads appear."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import gain_within
from .._sources import INDUCTION
from .._table import Reading

READS: dict[str, Reading] = {"share": gain_within(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    name = "change of the gain between a tenth and nine tenths of induction"
    return [exceeds(name, curves["share"], 0.75, "share of all change")]


FINDING = Finding(
    id="time:T8",
    claim="Most of learning in context comes in the window in which induction heads appear.",
    source=INDUCTION,
    published="over three quarters of the score's change",
    statistic="share of the change of the gain on repeated tokens that falls between t10 and t90 of the best head's "
    "prefix matching: at least .75",
    reads=READS,
    test=test,
    controls=(Control(name="the best window as wide elsewhere", reads={"share": gain_within(CAUSAL, elsewhere=True)}),),
    learned=(CAUSAL,),
)
