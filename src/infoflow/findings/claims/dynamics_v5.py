"""dynamics:V5. Feed-forward shares of translation by layer."""

import numpy as np

from .._chance import layers_in_any_order
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import COMPONENTS, FEED_FORWARD, halves_agree, profile, total_of
from .._model_group import TRANSLATION
from .._shapes import layer_names
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading, baselines

READS: dict[str, Reading] = {
    "encoder": profile(TRANSLATION, "encoder"),
    "decoder": profile(TRANSLATION, "decoder"),
}


def test(curves: Curves) -> list[Condition]:
    margins, labels = [], []
    for stack, curve in curves.items():
        feed = total_of(curve, FEED_FORWARD)
        upper = max(1, round(feed.shape[1] / 3))
        margins.append(feed[:, -upper:].max(axis=1, keepdims=True) - feed[:, :-upper])
        labels += [f"{stack}, {layer}" for layer in layer_names(feed.shape[1] - upper, 0)]
    return [
        exceeds(
            "largest share of W1 and W2 in the upper third, less that of each layer below",
            np.concatenate(margins, axis=1),
            0.0,
            "share",
            labels,
        )
    ]


FINDING = Finding(
    id="dynamics:V5",
    claim="In translation the feed-forward parts of the upper layers contribute most.",
    source=PARAMETER_CONTRIBUTIONS,
    published="feed-forward contributions peak in upper layers (slides; no number)",
    statistic="the largest share of W1 and W2 lies in the upper third of the layers, in the encoder and in the decoder",
    reads=READS,
    test=test,
    controls=(
        layers_in_any_order(READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(READS), decisive=False),
    ),
    learned=(TRANSLATION,),
    reliable=halves_agree((TRANSLATION,)),
)
