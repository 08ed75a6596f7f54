"""adaptation:A-11. Where the pretraining objective is forgotten.

Ours. Recalled and not read: that the source resets top layers of tuned models and finds tasks hardly hurt.
"""

from .._adaptation import regained
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import TUNING_INSIDE
from .._table import Reading, baselines, untrained

READS: dict[str, Reading] = {"lower less upper": regained(MASKED)}


def test(curves: Curves) -> list[Condition]:
    name = "pretraining loss with lower blocks taken back, less that with as many upper ones"
    return [exceeds(name, curves["lower less upper"], 0.0, "nats per predicted token")]


FINDING = Finding(
    id="adaptation:A-11",
    claim="Fine-tuning forgets the pretraining objective from the top.",
    source=TUNING_INSIDE,
    published="what changes lies in the top layers (no number of this kind)",
    statistic="upper blocks of a tuned model taken back to what they were: the pretraining loss is lower than with as "
    "many lower blocks taken back, mean over numbers of blocks and tasks",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model, tuned", reads=untrained(READS)),
        Control(name="the model before tuning, which has forgotten nothing", reads=baselines(READS)),
    ),
    learned=(MASKED,),
    minimum_seeds=1,
)
