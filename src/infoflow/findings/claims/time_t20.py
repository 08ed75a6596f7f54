"""time:T20. The dip of identity, and bigrams."""

from .._finding import Untested
from .._sources import OURS

FINDING = Untested(
    id="time:T20",
    claim=("In a masked LM, the loss of token identity and its return over the layers come after n-grams are learned."),
    source=OURS,
    published="none: ours, exploratory",
    why="the dip has no level of its own: no least depth is published, and a middle of a curve that goes and returns "
    "is none",
)
