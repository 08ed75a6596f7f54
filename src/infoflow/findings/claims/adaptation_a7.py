"""adaptation:A-7. Reading both ways, or from left to right.

The three averages are recalled and not read. There the models also differ in their corpora,
here in the objective alone.
"""

from .._adaptation import SHUFFLED, UNDERSTANDING, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED
from .._sources import BERT_PAPER
from .._table import Reading, untrained


def _reads(control: str = "") -> dict[str, Reading]:
    return {"scores": means(*(tuned(one, control=control) for one in (MASKED, CAUSAL)), shapes=UNDERSTANDING)}


READS = _reads()


def test(curves: Curves) -> list[Condition]:
    gain = curves["scores"][:, :1] - curves["scores"][:, 1:]
    return [exceeds("score of the masked LM less that of the causal LM", gain, 0.0, "score", published=0.045)]


FINDING = Finding(
    id="adaptation:A-7",
    claim="Bidirectional pretraining beats left-to-right pretraining on tasks of understanding.",
    source=BERT_PAPER,
    published="mean over GLUE: BERT-base 79.6, OpenAI GPT 75.1, biLSTM on ELMo 71.0 (recalled, not read)",
    statistic="main metric on test, tuned in full, mean over tasks but generation: masked LM above causal LM",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained models, tuned", reads=untrained(READS)),
        Control(name="shuffled labels", reads=_reads(SHUFFLED)),
    ),
    learned=(MASKED, CAUSAL),
)
