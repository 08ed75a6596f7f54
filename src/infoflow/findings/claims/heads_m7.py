"""heads:M7. Share of heads that can go at each checkpoint."""

from .._finding import Untested
from .._sources import SIXTEEN_HEADS

FINDING = Untested(
    id="heads:M7",
    claim="That many heads can go shows early in training.",
    source=SIXTEEN_HEADS,
    published=(
        "IWSLT: from about epoch 10 on, 40 % of the heads can go at 85 to 90 % of the BLEU; in epochs 1 and 2 every "
        "head costs alike"
    ),
    why="it needs models with ever fewer heads at several checkpoints of one training, which a study does not measure",
)
