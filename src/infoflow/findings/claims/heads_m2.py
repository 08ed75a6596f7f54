"""heads:M2. Every layer of the translation model with one head left, all other layers whole."""

import numpy as np

from .._condition import SHARE, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import MATTERS, best_head_left
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, baselines, untrained

ENOUGH = 0.05  # nats per token

READS: dict[str, Reading] = {
    "encoder": best_head_left("encoder", "self"),
    "decoder": best_head_left("decoder", "self"),
    "cross": best_head_left("decoder", "cross"),
}


def test(curves: Curves) -> list[Condition]:
    others = np.concatenate([curves["encoder"], curves["decoder"]], axis=1)
    layers = np.concatenate([others, curves["cross"]], axis=1)
    return [
        exceeds(
            f"share of layers that lose less than {ENOUGH} nats per token with one head left",
            (layers < ENOUGH).mean(axis=1, keepdims=True),
            0.5,
            "share of layers",
            bounds=SHARE,
            alone=False,  # nothing costs an untrained model anything: it counts with what does cost
        ),
        exceeds(
            "loss of the last cross-attention with one head left, less that of the worst self-attention",
            curves["cross"][:, -1:] - others.max(axis=1, keepdims=True),
            MATTERS,
            "nats per token",
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
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
