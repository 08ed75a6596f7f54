"""time:T20. The dip of identity, and bigrams."""

from .._finding import Untested
from .._sources import OURS

FINDING = Untested(
    id="time:T20",
    claim=("In a masked LM, the loss of token identity and its return over the layers come after n-grams are learned."),
    source=OURS,
    published="none: ours, exploratory",
    why=(
        "it needs both information over layers and the agreement with bigrams in one reading; the two tables are there"
    ),
)
