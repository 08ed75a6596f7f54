"""adaptation:A-9. Next-sentence prediction.

The source's numbers are recalled and not read. The margin is ours.
"""

from .._adaptation import UNDERSTANDING, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import ROBERTA
from .._table import Reading, Table
from .._zoo import NEXT_SENTENCE

MARGIN = 0.01


def _reads(without: Table) -> dict[str, Reading]:
    return {"without and with": means(without, tuned(NEXT_SENTENCE), shapes=UNDERSTANDING)}


READS = _reads(tuned(MASKED))


def test(curves: Curves) -> list[Condition]:
    without, with_it = curves["without and with"][:, :1], curves["without and with"][:, 1:]
    name = "score of the masked LM less that of the one with next-sentence prediction"
    return [exceeds(name, without - with_it, -MARGIN, "score", published=0.007)]


FINDING = Finding(
    id="adaptation:A-9",
    claim="Dropping next-sentence prediction costs nothing.",
    source=ROBERTA,
    published="MNLI-m 84.0 with it and 84.7 without, SQuAD 2.0 78.7 and 79.1 F1 (table 2; recalled, not read)",
    statistic="main metric on test, tuned in full, mean over tasks but generation: masked LM at most one point below "
    "the one with next-sentence prediction (our margin)",
    reads=READS,
    test=test,
    controls=(Control(name="all pretraining dropped: untrained model", reads=_reads(tuned(MASKED, trained=False))),),
    learned=(MASKED, NEXT_SENTENCE),
)
