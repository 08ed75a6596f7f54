"""probing:M-4. A claim about ELMo."""

from .._finding import Untested
from .._sources import DESCRIPTION_LENGTH

FINDING = Untested(
    id="probing:M-4",
    claim="Layer 1 of ELMo has a shorter code than layer 2 on all tasks, with every seed.",
    source=DESCRIPTION_LENGTH,
    published="layer 1 is the shortest on all tasks",
    why="it is about the two LSTM layers of ELMo, which is no Transformer: a measure of ours reads attention blocks",
)
