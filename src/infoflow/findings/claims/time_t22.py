"""time:T22. The best layer of probes."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._probes_over_time import best_layer_moves
from .._sources import BLEVINS
from .._table import Reading

TASK = ("upos", "xpos")
READS: dict[str, Reading] = {"moves": best_layer_moves(MASKED, TASK)}


def test(curves: Curves) -> list[Condition]:
    down, loss = (curves["moves"][:, [place]] for place in range(2))
    return [
        exceeds("layers by which the best one is lower at the end than when it was first told", down, 0.0, "layers"),
        exceeds("accuracy that the last layer has lost since then", loss, 0.0, "accuracy", alone=False),
    ]


FINDING = Finding(
    id="time:T22",
    claim=(
        "Knowledge moves down: the layer that tells parts of speech best is lower at the end than when it was "
        "first told."
    ),
    source=BLEVINS,
    published="best layers of probes move down during the training of XLM-R; no number",
    statistic=(
        "linear probes that are trained anew at every checkpoint: the best layer at the end lies below the one at the "
        "first checkpoint with nine tenths of the gain over step 0, and the last layer tells less than then"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="control labels", reads={"moves": best_layer_moves(MASKED, TASK, "control")}),),
    learned=(MASKED,),
)
