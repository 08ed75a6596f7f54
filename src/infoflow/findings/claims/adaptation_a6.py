"""adaptation:A-6. How many labelled examples pretraining is worth.

Recalled and not read: the sentence of the source's abstract.
"""

from .._adaptation import gain_by_size, no_gain_by_size
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import FEW_LABELS
from .._table import Reading

READS: dict[str, Reading] = {"gain": gain_by_size(MASKED)}


def test(curves: Curves) -> list[Condition]:
    few, many = curves["gain"][:, :1], curves["gain"][:, 1:]
    return [
        exceeds("gain of pretraining with fewest labelled examples less that with most", few - many, 0.0, "score"),
        exceeds("gain of pretraining with fewest labelled examples", few, 0.0, "score", alone=False),
    ]


FINDING = Finding(
    id="adaptation:A-6",
    claim="The more labelled examples there are, the less pretraining gains.",
    source=FEW_LABELS,
    published="100 labelled examples with pretraining match 100 times as many without (recalled, not read)",
    statistic="main metric on test, tuned in full, pretrained less untrained model, mean over tasks: larger with "
    "fewest labelled examples than with most",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="untrained model in place of the pretrained one, other seeds of tuning",
            reads={"gain": no_gain_by_size(MASKED)},
        ),
    ),
    learned=(MASKED,),
)
