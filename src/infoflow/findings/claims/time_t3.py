"""time:T3. When tokens of different frequency are learned."""

from .._finding import Untested
from .._sources import CHARACTERISTICS

FINDING = Untested(
    id="time:T3",
    claim="Frequent tokens are learned first.",
    source=CHARACTERISTICS,
    published="sigmoid over log steps: n-gram curves of tokens; frequent ones earlier (published code)",
    why="it needs the loss by frequency of the token at every checkpoint, which no measure gives yet",
)
