"""time:T9. Induction heads before attention to the first token."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import FIRST_TOKEN_CURVE, INDUCTION_CURVE, doublings_between
from .._sources import SINKS
from .._table import Reading

READS: dict[str, Reading] = {"later": doublings_between(CAUSAL, INDUCTION_CURVE, FIRST_TOKEN_CURVE)}


def test(curves: Curves) -> list[Condition]:
    name = "from the middle of induction to that of attention to the first token"
    return [exceeds(name, curves["later"], 2.0, "doublings of updates")]


FINDING = Finding(
    id="time:T9",
    claim="Induction heads come long before attention gathers on the first token.",
    source=SINKS,
    published="10 to 20 times as many tokens in models of a billion parameters",
    statistic="four times as many updates or more at the middle of the change of attention to the first token, mean "
    "over heads, than at that of the best head's prefix matching",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="heads that attend to the token before, for induction heads",
            reads={"later": doublings_between(CAUSAL, "positional -1, best self head", FIRST_TOKEN_CURVE)},
        ),
    ),
    learned=(CAUSAL,),
)
