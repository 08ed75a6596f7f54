"""representations:V-1. Layers are 0..L."""

from .._clustering import clustering_control
from .._condition import Condition, exceeds
from .._curves import information
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._shapes import falls, step_names, total_fall
from .._sources import BOTTOM_UP
from .._table import untrained

READS = {"causal": information(CAUSAL, "input")}


def test(curves: Curves) -> list[Condition]:
    steps = falls(curves["causal"])
    return [
        exceeds(
            "total fall of the information about the input", total_fall(curves["causal"]), 0.33, "nats", published=1.33
        ),
        exceeds("fall at every layer", steps, 0.0, "nats", step_names(steps.shape[1], 0), published=0.015),
    ]


FINDING = Finding(
    id="representations:V-1",
    claim="A causal language model forgets its input token, layer by layer.",
    source=BOTTOM_UP,
    published="5.30 5.285 5.22 5.05 4.81 4.47 3.97 nats at layers 0 to 6: a fall of 1.33",
    statistic="mutual information with the input token falls at every layer; from layer 0 to the top by over .33 nats",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)), clustering_control(READS)),
    learned=(CAUSAL,),
    minimum_seeds=1,
)
