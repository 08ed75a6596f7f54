"""time:T14. How soon predictions are those of the end."""

from .._condition import Condition, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._over_time import divergence_left
from .._sources import SOURCE_AND_TARGET
from .._table import Reading

SHARE = 0.25
READS: dict[str, Reading] = {"left": divergence_left(TRANSLATION, SHARE)}


def test(curves: Curves) -> list[Condition]:
    name = "divergence from the last checkpoint's predictions after a quarter of the updates, of that at step 0"
    return [stays_below(name, curves["left"], 0.1, "share")]


FINDING = Finding(
    id="time:T14",
    claim="A translation model's predictions settle early.",
    source=SOURCE_AND_TARGET,
    published="little change after about 12,000 batches",
    statistic="KL(p_T||p_t) of the predictions of the last checkpoint and of the one at a quarter of the updates: at "
    "most a tenth of that at step 0",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="a quarter of the sum of the learning rates, for a quarter of the updates",
            reads={"left": divergence_left(TRANSLATION, SHARE, "lr_share")},
            decisive=False,
        ),
        Control(name="step 0", reads={"left": divergence_left(TRANSLATION, 0.0)}, decisive=False),
    ),
    learned=(TRANSLATION,),
    uncontrolled="the divergence is counted in units of that at step 0",
)
