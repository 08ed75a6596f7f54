"""adaptation:A-11. Where the pretraining objective is forgotten.

Ours. What is outside of the blocks counts for neither side: an output matrix that is tied to the embeddings goes back
with them, and with it the last step of the pretraining loss. Recalled and not read: that the source resets top layers
of tuned models and finds tasks hardly hurt.
"""

from .._adaptation import regained
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import TUNING_INSIDE
from .._table import Reading, untrained

READS: dict[str, Reading] = {"lower less upper": regained(MASKED)}


def test(curves: Curves) -> list[Condition]:
    name = "pretraining loss that upper blocks taken back regain, less what as many lower ones do"
    return [exceeds(name, curves["lower less upper"], 0.0, "nats per predicted token")]


FINDING = Finding(
    id="adaptation:A-11",
    claim="Fine-tuning forgets the pretraining objective from the top.",
    source=TUNING_INSIDE,
    published="what changes lies in the top layers (no number of this kind)",
    statistic="upper blocks of a tuned model taken back to what they were regain more of the pretraining loss than as "
    "many lower blocks do beyond what the embeddings regain alone, mean over numbers of blocks and tasks",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model, tuned", reads=untrained(READS)),),
    learned=(MASKED,),
    minimum_seeds=1,
)
