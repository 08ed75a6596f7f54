"""adaptation:A-3. Pretraining on text of the task's domain.

The source's averages are recalled and not read.
"""

from .._adaptation import FULL, IN_DOMAIN, SHUFFLED, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SCIBERT_PAPER
from .._table import Reading

READS: dict[str, Reading] = {"domain and general": means(tuned(MASKED, FULL, IN_DOMAIN), tuned(MASKED))}


def test(curves: Curves) -> list[Condition]:
    domain, general = curves["domain and general"][:, :1], curves["domain and general"][:, 1:]
    return [exceeds("score with pretraining on the domain less that without", domain - general, 0.0, "score",
                    published=0.0211)]  # fmt: skip


FINDING = Finding(
    id="adaptation:A-3",
    claim="Pretraining on text of the domain helps the tasks of the domain.",
    source=SCIBERT_PAPER,
    published="mean F1, fine-tuned: 77.16 with BERT, 79.27 with SciBERT (recalled, not read)",
    statistic="main metric on test, tuned in full, mean over tasks: after pretraining on the domain (continued, else "
    "from scratch) above the model as it is",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="untrained model in place of that of the domain",
            reads={"domain and general": means(tuned(MASKED, trained=False), tuned(MASKED))},
        ),
        Control(
            name="shuffled labels in place of the domain",
            reads={"domain and general": means(tuned(MASKED, control=SHUFFLED), tuned(MASKED))},
        ),
    ),
    learned=(MASKED,),
)
