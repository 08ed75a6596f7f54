"""time:T17. Divergence between seeds' outputs."""

from .._finding import Untested
from .._sources import FOUR_PHASES

FINDING = Untested(
    id="time:T17",
    claim="Seeds are alike, drift apart and come together again.",
    source=FOUR_PHASES,
    published="four phases of the divergence between outputs of seeds; no number",
    why="it needs the divergence between the outputs of two seeds at one update; a checkpoint is compared with others "
    "of its own training and with the last states of another",
)
