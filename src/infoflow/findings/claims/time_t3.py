"""time:T3. When tokens of different frequency are learned."""

from .._condition import CORRELATION, Condition, stays_below
from .._deciles_over_time import frequency_correlation, shuffled_deciles, times_by_frequency
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._sources import CHARACTERISTICS
from .._table import Reading

READS: dict[str, Reading] = {"times": times_by_frequency(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    found = frequency_correlation(curves["times"])
    name, unit = "frequency and the update at which half of the gain is there", "rank correlation"
    return [stays_below(name, found, -0.6, unit, bounds=CORRELATION)]


FINDING = Finding(
    id="time:T3",
    claim="Frequent tokens are learned first.",
    source=CHARACTERISTICS,
    published="sigmoid over log steps: n-gram curves of tokens; frequent ones earlier (published code)",
    statistic=(
        "deciles of the types by frequency in the training text: rank correlation of frequency and the update from "
        "which on half of the gain over the tokens' unigram loss is there, -.6 or less (threshold ours)"
    ),
    reads=READS,
    test=test,
    controls=(
        shuffled_deciles(READS),
        Control(
            name="the whole fall of the loss, for which unigrams are enough",
            reads={"times": times_by_frequency(CAUSAL, raw=True)},
            decisive=False,
        ),
    ),
    learned=(CAUSAL,),
)
