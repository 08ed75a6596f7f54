"""representations:V-2. Layers are 0..L."""

from .._clustering import clustering_control
from .._condition import Condition, exceeds
from .._curves import information
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, TRANSLATION
from .._shapes import falls, step_names, total_fall
from .._sources import BOTTOM_UP
from .._table import untrained

READS = {"causal": information(CAUSAL, "input"), "translation": information(TRANSLATION, "input")}


def test(curves: Curves) -> list[Condition]:
    steps = falls(curves["translation"])
    return [
        exceeds(
            "total fall of the causal LM minus that of the translation encoder",
            total_fall(curves["causal"]) - total_fall(curves["translation"]),
            0.15,
            "nats",
            published=0.59,
        ),
        exceeds(
            "fall of the translation encoder at every layer",
            steps,
            0.0,
            "nats",
            step_names(steps.shape[1], 0),
            published=0.005,
        ),
    ]


FINDING = Finding(
    id="representations:V-2",
    claim="A translation encoder forgets its input token too, but less than a causal language model.",
    source=BOTTOM_UP,
    published="falls of .74 (translation: 5.215 to 4.475) and 1.33 nats (causal LM: 5.30 to 3.97) over six layers",
    statistic=(
        "mutual information with the input token falls at every layer of the translation encoder, and in total by at "
        "least .15 nats less than in the causal LM"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained models", reads=untrained(READS)), clustering_control(READS)),
    learned=(CAUSAL, TRANSLATION),
)
