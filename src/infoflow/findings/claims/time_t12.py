"""time:T12. The order of words moves after the quality has settled."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._over_time import order_last
from .._sources import TRANSLATION_STAGES
from .._table import Reading

READS: dict[str, Reading] = {"order": order_last()}


def test(curves: Curves) -> list[Condition]:
    after, half = (curves["order"][:, [place]] for place in range(2))
    unit = "share of its range"
    return [
        exceeds("movement of the reordering score after nine tenths of chrF", after, 0.2, unit),
        exceeds("the same over the last half of the updates", half, 0.2, unit),
    ]


FINDING = Finding(
    id="time:T12",
    claim="Reordering is learned last.",
    source=TRANSLATION_STAGES,
    published="translations become less monotone while BLEU hardly changes any more",
    statistic=(
        "fuzzy reordering score of greedy translations (with begin and end) against one word aligner: after chrF has "
        "come to .9 of its end it moves over a fifth of its range, and so it does over the last half of the updates"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="the same words in random order", reads={"order": order_last("baseline")}),),
    learned=(TRANSLATION,),
)
