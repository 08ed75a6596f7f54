"""time:T7. Induction heads and learning in context, at once and together."""

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import GAIN, at_once
from .._sources import INDUCTION
from .._table import Reading

READS: dict[str, Reading] = {"both": at_once(CAUSAL, GAIN)}


def test(curves: Curves) -> list[Condition]:
    abrupt, apart = (curves["both"][:, [place]] for place in range(2))
    return [
        exceeds("share of seeds in which both come at once", abrupt, 0.5, "share of seeds", alone=False, of=1),
        stays_below("between the middle of induction and that of the gain", apart, 1.0, "doublings of updates"),
    ]


FINDING = Finding(
    id="time:T7",
    claim="Induction heads and learning in context come at once, and together.",
    source=INDUCTION,
    published="both in a window from 2.5 to 5 billion tokens, in models of two layers and more",
    statistic=(
        "best head's prefix matching on repeated tokens, and the gain of their second copy: both abrupt by the rules "
        "of the table `phases`, middles at most a doubling apart"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="heads that attend to the token before, for induction heads",
            reads={"both": at_once(CAUSAL, GAIN, "positional -1, best self head")},
        ),
    ),
    learned=(CAUSAL,),
)
