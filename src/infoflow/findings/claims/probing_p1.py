"""probing:P-1. Selectivity over layers."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import TOKEN_TASKS, accuracy
from .._sources import CONTROL_TASKS
from .._table import Reading, untrained

READS: dict[str, Reading] = {"selectivity": accuracy(MASKED, TOKEN_TASKS, metric="selectivity")}


def test(curves: Curves) -> list[Condition]:
    selectivity = curves["selectivity"]
    return [
        exceeds(
            "highest selectivity of a contextual layer above that of layer 0",
            (selectivity[:, 1:] - selectivity[:, :1]),
            0.0,
            "accuracy",
            [f"layer {layer}" for layer in range(1, selectivity.shape[1])],
            over="any",
        )
    ]


FINDING = Finding(
    id="probing:P-1",
    claim="A linear probe is less selective on the embeddings than on some contextual layer: word identity lets it "
    "learn random labels of word types too.",
    source=CONTROL_TASKS,
    published="layer 0 has the lowest selectivity of ELMo's layers",
    statistic="accuracy on the task less that on the control task, of a linear probe: some layer above layer 0",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
