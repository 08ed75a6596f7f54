"""heads:V6. Relevance of the self-attention heads of the translation encoder."""

import numpy as np

from .._condition import Condition
from .._dominant import DominantHeads
from .._finding import Control, Curves, Finding
from .._reading import Reading, untrained
from .._sources import HEAVY_LIFTING

READS: dict[str, Reading] = {"heads": DominantHeads(objective="translation")}

DOMINANT = 1.5  # the most relevant head's share, in equal shares; the paper shows no number
EQUAL = 1.0


def test(curves: Curves) -> list[Condition]:
    numbers = curves["heads"]
    top, agreement, rare = numbers[:, :-2], numbers[:, -2:-1], numbers[:, -1:]
    conditions = [
        Condition(
            name="share of the most relevant head of each layer",
            values=top,
            labels=[f"block {layer}" for layer in range(top.shape[1])],
            threshold=DOMINANT,
            unit="times an equal share",
        ),
        Condition(
            name="agreement of relevance and confidence over heads",
            values=agreement,
            labels=["all layers"],
            threshold=0.0,
            unit="Spearman's correlation",
        ),
    ]
    if np.isnan(rare[0]).all():  # rare-token scores were not measured
        return conditions
    exception = Condition(
        name="share of the first layer's rare-token head",
        values=rare,
        labels=["block 0"],
        threshold=EQUAL,
        unit="times an equal share",
    )
    return [*conditions, exception]


FINDING = Finding(
    id="heads:V6",
    claim="Few heads of a translation encoder dominate each layer, and relevant heads are confident ones, but for the "
    "rare-token head of the first layer, which is relevant too.",
    source=HEAVY_LIFTING,
    published="a few heads of each layer hold most of its relevance, in a figure without numbers; heads with high "
    "relevance have high confidence, except one in the first layer that points to rare tokens",
    statistic=(
        "in every layer the most relevant head has over 1.5 times an equal share; relevance and confidence correlate "
        "over all other heads; and the first layer's rare-token head has more than an equal share"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=("translation",),
    minimum_seeds=1,
)
