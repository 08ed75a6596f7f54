"""dynamics:V5. Feed-forward shares of translation by layer."""

import numpy as np

from .._allocation import FEED_FORWARD, Profile, total_of
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, baselines
from .._shapes import layer_names
from .._sources import PARAMETER_CONTRIBUTIONS

READS: dict[str, Reading] = {
    "encoder": Profile(objective="translation", stack="encoder"),
    "decoder": Profile(objective="translation", stack="decoder"),
}


def test(curves: Curves) -> list[Condition]:
    margins, labels = [], []
    for stack, curve in curves.items():
        feed = total_of(curve, FEED_FORWARD)
        upper = max(1, round(feed.shape[1] / 3))
        margins.append(feed[:, -upper:].max(axis=1, keepdims=True) - feed[:, :-upper])
        labels += [f"{stack}, {layer}" for layer in layer_names(feed.shape[1] - upper, 0)]
    return [
        Condition(
            name="largest share of W1 and W2 in the upper third, less that of each layer below",
            values=np.concatenate(margins, axis=1),
            labels=labels,
            threshold=0.0,
            unit="share",
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
    controls=(Control(name="the same allocation for every parameter", reads=baselines(READS)),),
    learned=("translation",),
)
