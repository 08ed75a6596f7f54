"""dynamics:V2. W1 and W2 against every other component, layer by layer."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import ATTENTION, FEED_FORWARD, halves_agree, profile, total_of
from .._model_group import NAMES, OBJECTIVES
from .._shapes import layer_names
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading, baselines

OTHERS = (*ATTENTION, "norm")
SIZES: dict[str, Reading] = {f"{one.name} parameters": profile(one, number="parameters") for one in OBJECTIVES}
SHARES: dict[str, Reading] = {one.name: profile(one) for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        _margin("share of W1 and W2 less that of any other component", curves, per_parameter=False),
        _margin("the same per parameter, in units of the mean parameter", curves, per_parameter=True),
    ]


def _margin(name: str, curves: Curves, per_parameter: bool) -> Condition:
    margins, labels = [], []
    for objective in OBJECTIVES:
        share, size = curves[objective.name], curves[f"{objective.name} parameters"]
        feed = total_of(share, FEED_FORWARD) / (total_of(size, FEED_FORWARD) if per_parameter else 1)
        for other in OTHERS:
            margins.append(feed - total_of(share, (other,)) / (total_of(size, (other,)) if per_parameter else 1))
            labels += [f"{NAMES[objective]}, {layer}, {other}" for layer in layer_names(feed.shape[1], 0)]
    unit = "mean parameters" if per_parameter else "share"
    # W1 and W2 are most of the parameters: alike for every one, theirs is the largest share.
    return exceeds(name, np.concatenate(margins, axis=1), 0.0, unit, labels, alone=per_parameter)


FINDING = Finding(
    id="dynamics:V2",
    claim="The feed-forward parts contribute most to the loss change in each layer, even per parameter.",
    source=PARAMETER_CONTRIBUTIONS,
    published="feed-forward parts are the main contributors in each layer (no number in the abstract)",
    statistic=(
        "in every layer and objective, W1 and W2 together have a larger share than query, key, value, output or norms, "
        "raw "
        "and per parameter"
    ),
    reads=SHARES | SIZES,
    test=test,
    controls=(
        Control(name="the same allocation for every parameter", reads=baselines(SHARES) | SIZES, decisive=False),
    ),
    uncontrolled="the same allocation for every parameter is no difference per parameter, whatever is trained",
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
