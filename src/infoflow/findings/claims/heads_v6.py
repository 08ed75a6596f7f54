"""heads:V6. Relevance of the self-attention heads of the translation encoder."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import dominant_heads
from .._model_group import TRANSLATION
from .._sources import HEAVY_LIFTING
from .._table import Reading, untrained

READS: dict[str, Reading] = {"heads": dominant_heads()}

DOMINANT = 1.5  # the most relevant head's share, in equal shares; the paper shows no number
EQUAL = 1.0


def test(curves: Curves) -> list[Condition]:
    numbers = curves["heads"]
    top, agreement, rare = numbers[:, :-2], numbers[:, -2:-1], numbers[:, -1:]
    conditions = [
        exceeds(
            "share of the most relevant head of each layer",
            top,
            DOMINANT,
            "times an equal share",
            [f"block {layer}" for layer in range(top.shape[1])],
        ),
        exceeds("agreement of relevance and confidence over heads", agreement, 0.0, "Spearman's correlation"),
    ]
    if np.isnan(rare[0]).all():  # rare-token scores were not measured
        return conditions
    exception = exceeds("share of the first layer's rare-token head", rare, EQUAL, "times an equal share")
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
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
