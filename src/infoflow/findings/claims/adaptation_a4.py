"""adaptation:A-4. Two ways to a model of the domain.

Recalled and not read: that both won on each of the source's tasks; it gives the differences by task.
"""

from .._adaptation import CONTINUED, FULL, SCRATCH, SHUFFLED, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import LEGAL_BERT_PAPER
from .._table import Reading, Table

WAYS = ("continued", "from scratch on the domain")


def _reads(*ways: Table) -> dict[str, Reading]:
    return {name: means(way, tuned(MASKED)) for name, way in zip(WAYS, ways, strict=True)}


READS = _reads(tuned(MASKED, FULL, CONTINUED), tuned(MASKED, FULL, SCRATCH))


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(f"score of the model {name} less that of the model as it is", way[:, :1] - way[:, 1:], 0.0, "score")
        for name, way in ((name, curves[name]) for name in WAYS)
    ]


FINDING = Finding(
    id="adaptation:A-4",
    claim="A model that is trained further on the domain and one trained on the domain alone both beat the general "
    "model as it is.",
    source=LEGAL_BERT_PAPER,
    published="both beat BERT out of the box, most where tasks are hard (up to 2.5 points; recalled, not read)",
    statistic="main metric on test, tuned in full, mean over tasks: both strategies above the model as it is",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model in place of both", reads=_reads(*[tuned(MASKED, trained=False)] * 2)),
        Control(name="shuffled labels in place of both", reads=_reads(*[tuned(MASKED, control=SHUFFLED)] * 2)),
    ),
    learned=(MASKED,),
)
