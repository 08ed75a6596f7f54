"""heads:M2. Every layer of the translation model with one head left, all other layers whole."""

import numpy as np

from .._ablated_heads import MATTERS, BestHeadLeft
from .._condition import SHARE, Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, baselines, untrained
from .._sources import SIXTEEN_HEADS

ENOUGH = 0.05  # nats per token

READS: dict[str, Reading] = {
    "encoder": BestHeadLeft(objective="translation", stack="encoder", kind="self"),
    "decoder": BestHeadLeft(objective="translation", stack="decoder", kind="self"),
    "cross": BestHeadLeft(objective="translation", stack="decoder", kind="cross"),
}


def test(curves: Curves) -> list[Condition]:
    others = np.concatenate([curves["encoder"], curves["decoder"]], axis=1)
    layers = np.concatenate([others, curves["cross"]], axis=1)
    return [
        Condition(
            name=f"share of layers that lose less than {ENOUGH} nats per token with one head left",
            values=(layers < ENOUGH).mean(axis=1, keepdims=True),
            labels=["all layers and kinds"],
            threshold=0.5,
            unit="share of layers",
            bounds=SHARE,
            alone=False,  # nothing costs an untrained model anything: it counts with what does cost
        ),
        Condition(
            name="loss of the last cross-attention with one head left, less that of the worst self-attention",
            values=curves["cross"][:, -1:] - others.max(axis=1, keepdims=True),
            labels=["last layer"],
            threshold=MATTERS,
            unit="nats per token",
        ),
    ]


FINDING = Finding(
    id="heads:M2",
    claim="One head is enough in most layers, but not in the late cross-attention.",
    source=SIXTEEN_HEADS,
    published=(
        "BLEU with the best single head: worst encoder layer −1.31, cross-attention layer 6 −13.56 and layer 5 −1.55, "
        "decoder self-attention none significant"
    ),
    statistic=(
        f"the best single head costs less than {ENOUGH} nats per predicted token in over half of the layers, and more "
        f"in the last cross-attention than in any self-attention, by over {MATTERS}"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(name="a random head left", reads=baselines(READS), decisive=False),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
