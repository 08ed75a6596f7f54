"""adaptation:A-10. Masking spans.

The source's numbers are recalled and not read.
"""

from .._adaptation import SHUFFLED, TEXTS, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SPANBERT_PAPER
from .._table import Reading, untrained
from .._zoo import SPANBERT


def _reads(control: str = "") -> dict[str, Reading]:
    both = tuned(SPANBERT, control=control), tuned(MASKED, control=control)
    return {"spans": means(*both, shapes=("span",)), "texts": means(*both, shapes=TEXTS)}


READS = _reads()


def test(curves: Curves) -> list[Condition]:
    spans, texts = (curves[name][:, :1] - curves[name][:, 1:] for name in ("spans", "texts"))
    return [
        exceeds("score of SpanBERT less that of the masked LM, span tasks", spans, 0.0, "score", published=0.02),
        exceeds("this gain less that on tasks about whole texts", spans - texts, 0.0, "score", alone=False),
    ]


FINDING = Finding(
    id="adaptation:A-10",
    claim="Masking spans helps tasks whose answers are spans, more than others.",
    source=SPANBERT_PAPER,
    published="SQuAD 1.1: 94.6 F1 beside 92.6 of their BERT; smaller gains on most of GLUE (recalled, not read)",
    statistic="main metric on test, tuned in full: SpanBERT above the masked LM on span tasks, and by more than on "
    "classification, regression and choice",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained models, tuned", reads=untrained(READS)),
        Control(name="shuffled labels", reads=_reads(SHUFFLED)),
    ),
    learned=(MASKED, SPANBERT),
)
