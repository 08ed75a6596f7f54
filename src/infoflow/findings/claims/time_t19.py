"""time:T19. Warm-up and the stages of learning."""

from .._finding import Untested
from .._sources import NGRAM_STAGES

FINDING = Untested(
    id="time:T19",
    claim=(
        "Stages follow the learning rate: with four times the warm-up, the minimum of the divergence from "
        "unigrams comes later, at the same sum of learning rates."
    ),
    source=NGRAM_STAGES,
    published=(
        "14m: minima at 256 and 1,000 updates, with a longer warm-up at 1,000 and 2,000 (published data; by "
        "what factor the warm-up grew is unverified)"
    ),
    why="it needs a second study of the same plan with a longer warm-up; a run has one warm-up",
)
