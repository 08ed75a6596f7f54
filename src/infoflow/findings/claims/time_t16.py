"""time:T16. Effective rank over training."""

from .._finding import Untested
from .._sources import RAZZHIGAEV

FINDING = Untested(
    id="time:T16",
    claim="The dimension of the last states falls, rises and falls again.",
    source=RAZZHIGAEV,
    published="collapse in the warm-up, expansion, compression; or a rise and a fall; no common number",
    why="it needs the effective rank of the last states at every checkpoint, with the batches of the source",
)
