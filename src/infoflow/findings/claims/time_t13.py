"""time:T13. The share of the source in a translation's predictions, over training."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._over_time import source_dip
from .._sources import SOURCE_AND_TARGET
from .._table import Reading

READS: dict[str, Reading] = {"dip": source_dip()}


def test(curves: Curves) -> list[Condition]:
    name = "lowest share of the source below the lower one of its start and its end"
    return [exceeds(name, curves["dip"], 0.03, "share of relevance")]


FINDING = Finding(
    id="time:T13",
    claim="The share of the source in a translation's predictions falls, then rises.",
    source=SOURCE_AND_TARGET,
    published="the source's share falls at first and rises later in training; no number",
    statistic=(
        "share of the source in the relevance for the likeliest token, mean over steps of the decoder after the first: "
        "between the first and the last checkpoint more than .03 below both"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="equal relevance of all tokens", reads={"dip": source_dip("baseline")}, decisive=False),
        Control(name="another rule of relevance", reads={"dip": source_dip(rule=1)}, decisive=False),
    ),
    learned=(TRANSLATION,),
    uncontrolled="equal relevance has no dip, whatever was trained",
)
