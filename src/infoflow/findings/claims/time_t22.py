"""time:T22. The best layer of probes."""

from .._finding import Untested
from .._sources import BLEVINS

FINDING = Untested(
    id="time:T22",
    claim=(
        "Knowledge moves down: the layer that tells parts of speech best is lower at the end than when it was "
        "first told."
    ),
    source=BLEVINS,
    published="best layers of probes move down during the training of XLM-R; no number",
    why="it needs probes of parts of speech in the states of every layer at every checkpoint",
)
