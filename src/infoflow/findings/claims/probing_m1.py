"""probing:M-1. Description length tells a linguistic task from random labels of word types."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import bits
from .._shapes import layer_names
from .._sources import DESCRIPTION_LENGTH
from .._table import Reading

READS: dict[str, Reading] = {"task": bits(MASKED), "control": bits(MASKED, "control")}


def test(curves: Curves) -> list[Condition]:
    ratio = curves["control"] / curves["task"]
    return [
        exceeds("bits of the control task over those of the task, layer 0", ratio[:, :1], 1.5, "ratio", published=2.0),
        exceeds("the same in every layer", ratio, 1.0, "ratio", layer_names(ratio.shape[1], 0), alone=False),
    ]


FINDING = Finding(
    id="probing:M-1",
    claim="Description length tells a linguistic task from a control task, random labels of word types, where "
    "accuracy may not.",
    source=DESCRIPTION_LENGTH,
    published="layer 0: the control task is the more accurate one, and its code about twice as long",
    statistic="online code of the control task at least 1.5 times that of the task at layer 0, and longer in every "
    "layer",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="shuffled labels in place of the task",
            reads={"task": bits(MASKED, "shuffled"), "control": READS["control"]},
        ),
    ),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
