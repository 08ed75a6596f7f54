"""time:T21. Rows of the embedding matrix."""

from .._finding import Untested
from .._sources import OURS

FINDING = Untested(
    id="time:T21",
    claim="Embeddings of rare tokens settle last.",
    source=OURS,
    published="none: ours, exploratory",
    why="it needs the displacement of every row of the embedding matrix at every checkpoint",
)
