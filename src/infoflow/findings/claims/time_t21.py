"""time:T21. Rows of the embedding matrix."""

from .._condition import CORRELATION, Condition, stays_below
from .._deciles_over_time import embeddings_settled, frequency_correlation, shuffled_deciles
from .._finding import Curves, Finding
from .._model_group import CAUSAL
from .._sources import OURS
from .._table import Reading

READS: dict[str, Reading] = {"times": embeddings_settled(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    found = frequency_correlation(curves["times"])
    name, unit = "frequency and the update from which on nine tenths of the way are done", "rank correlation"
    return [stays_below(name, found, -0.6, unit, bounds=CORRELATION)]


FINDING = Finding(
    id="time:T21",
    claim="Embeddings of rare tokens settle last.",
    source=OURS,
    published="none: ours, exploratory",
    statistic=(
        "deciles of the types by frequency in the training text: rank correlation of frequency and the update from "
        "which on their rows of the embedding matrix are within a tenth of the way to the last ones, -.6 or less "
        "(threshold ours)"
    ),
    reads=READS,
    test=test,
    controls=(shuffled_deciles(READS),),
    learned=(CAUSAL,),
)
