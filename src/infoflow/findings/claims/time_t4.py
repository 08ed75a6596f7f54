"""time:T4. The order of n-grams in learning."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import ngram_minima
from .._sources import NGRAM_STAGES
from .._table import Reading

READS: dict[str, Reading] = {"minima": ngram_minima(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    later, latest, rise_1, rise_2 = (curves["minima"][:, [place]] for place in range(4))
    minimum, rise = "from the minimum of KL(Q{}||P) to that of Q{}", "rise of KL(Q{}||P) after its minimum"
    return [
        exceeds(minimum.format(1, 2), later, 0.0, "doublings of updates"),
        # The trigrams' minimum may be the bigrams': at the same checkpoint it counts.
        exceeds(minimum.format(2, 3), latest, -1e-9, "doublings of updates", alone=False),
        exceeds(rise.format(1), rise_1, 0.1, "nats"),
        exceeds(rise.format(2), rise_2, 0.1, "nats", alone=False),
    ]


FINDING = Finding(
    id="time:T4",
    claim="A language model learns unigrams, then bigrams, then longer contexts.",
    source=NGRAM_STAGES,
    published=(
        "Pythia 70m, loss on texts drawn from unigrams least at 128 updates, from bigrams at 256; 12b: divergence from "
        "unigrams least (.889 nats) at 64, from bigrams (1.441) at 256"
    ),
    statistic=(
        "divergence of n-gram models of the training text from the model: least first for unigrams, later for bigrams, "
        "then or later for trigrams; over .1 nats of rise after the first two"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="a model that predicts uniformly",
            reads={"minima": ngram_minima(CAUSAL, "baseline")},
            decisive=False,
        ),
    ),
    learned=(CAUSAL,),
    uncontrolled="a model without frequencies has no least divergence from them, whatever was trained",
)
