"""time:T6. Syntactic heads, loss and grammar scores."""

from .._finding import Untested
from .._sources import SUDDEN_DROPS

FINDING = Untested(
    id="time:T6",
    claim=(
        "In a masked LM, heads of dependency relations appear at once, with a steep fall of the loss, before "
        "grammar is mastered."
    ),
    source=SUDDEN_DROPS,
    published="attention structure at about 20,000 of 1,000,000 updates, grammar scores at 20,000 to 30,000",
    why="it needs scores of grammar (minimal pairs) at every checkpoint; the heads of relations and the loss are there",
)
