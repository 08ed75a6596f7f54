"""time:T5. The order in which probes rise."""

from .._finding import Untested
from .._sources import SAPHRA

FINDING = Untested(
    id="time:T5",
    claim="Parts of speech are learned before dependencies, these before coreference or topic.",
    source=SAPHRA,
    published="parts of speech before topic in a language model; order of scores, no single number",
    why="it needs probes of parts of speech, dependencies and coreference at every checkpoint, trained anew at each; "
    "there are probes of attention alone, which find no coreference",
)
