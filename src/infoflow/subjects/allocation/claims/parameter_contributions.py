"""Claims about dynamics: V1, V2, V3."""

from itertools import combinations

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._curves import layer_names
from infoflow.findings._finding import Condition, Control, Curves, claim, exceeds
from infoflow.findings._model_group import NAMES, OBJECTIVES
from infoflow.findings._sources import PARAMETER_CONTRIBUTIONS
from infoflow.findings._table import Reading, baselines

from ._loss_change import (
    ATTENTION,
    FEED_FORWARD,
    corpus_similarity,
    halves_agree,
    own_over_others,
    profile,
    profile_similarity,
    total_of,
)

PAIRS = tuple(combinations(OBJECTIVES, 2))


WITHIN: dict[str, Reading] = {one.name: profile_similarity(one, one) for one in OBJECTIVES}


_V1_READS: dict[str, Reading] = WITHIN | {
    f"{one.name}, {other.name}": profile_similarity(one, other) for one, other in PAIRS
}


@claim(
    "dynamics:V1",
    "The objective decides which parameters do the learning: two seeds of one objective are more alike than two "
    "objectives.",
    source=PARAMETER_CONTRIBUTIONS,
    published="objectives give distinct optimisation dynamics on comparable Transformers (no number in the abstract)",
    statistic="rank correlation of the shares of layers × components under different seeds: between any two objectives "
    "it is below that within either",
    reads=_V1_READS,
    controls=(seeds_alone(_V1_READS, tuple(WITHIN), tuple(f"{one.name}, {other.name}" for one, other in PAIRS)),),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
def v1(curves: Curves) -> list[Condition]:
    """Share profiles of the stacks that read the text, under different seeds."""
    return [own_over_others("similarity under two seeds of one objective, less that of two objectives", curves)]


OTHERS = (*ATTENTION, "norm")


SIZES: dict[str, Reading] = {f"{one.name} parameters": profile(one, number="parameters") for one in OBJECTIVES}


SHARES: dict[str, Reading] = {one.name: profile(one) for one in OBJECTIVES}


def _margin(name: str, curves: Curves, per_parameter: bool) -> Condition:
    margins, labels = [], []
    for objective in OBJECTIVES:
        share, size = curves[objective.name], curves[f"{objective.name} parameters"]
        feed = total_of(share, FEED_FORWARD) / (total_of(size, FEED_FORWARD) if per_parameter else 1)
        for other in OTHERS:
            margins.append(feed - total_of(share, (other,)) / (total_of(size, (other,)) if per_parameter else 1))
            labels += [f"{NAMES[objective]}, {layer}, {other}" for layer in layer_names(feed.shape[1], 0)]
    unit = "mean parameters" if per_parameter else "share"
    # W1 and W2 are most of the parameters: with an equal allocation, theirs is the largest share.
    return exceeds(name, np.concatenate(margins, axis=1), 0.0, unit, labels, alone=per_parameter)


@claim(
    "dynamics:V2",
    "The feed-forward parts contribute most to the loss change in each layer, even per parameter.",
    source=PARAMETER_CONTRIBUTIONS,
    published="feed-forward parts are the main contributors in each layer (no number in the abstract)",
    statistic="in every layer and objective, W1 and W2 together have a larger share than query, key, value, output or "
    "norms, raw and per parameter",
    reads=SHARES | SIZES,
    controls=(
        Control(name="the same allocation for every parameter", reads=baselines(SHARES) | SIZES, decisive=False),
    ),
    uncontrolled="the same allocation for every parameter is no difference per parameter, whatever is trained",
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
def v2(curves: Curves) -> list[Condition]:
    """W1 and W2 compared with every other component, layer by layer."""
    return [
        _margin("share of W1 and W2 less that of any other component", curves, per_parameter=False),
        _margin("the same per parameter, in units of the mean parameter", curves, per_parameter=True),
    ]


_V3_PAIRS = tuple(combinations(OBJECTIVES, 2))


ACROSS: dict[str, Reading] = {one.name: corpus_similarity(one, one, "other") for one in OBJECTIVES}


_V3_READS: dict[str, Reading] = ACROSS | {
    f"{one.name}, {other.name}": corpus_similarity(one, other, "same") for one, other in _V3_PAIRS
}


@claim(
    "dynamics:V3",
    "The dynamics depend on the objective, not on the size or the domain of the data: one objective on two corpora is "
    "more alike than two objectives on one corpus.",
    source=PARAMETER_CONTRIBUTIONS,
    published="Europarl against WMT, and 700 thousand, 2 and 5 million sentence pairs (slides), look alike",
    statistic="rank correlation of the shares of layers × components under different seeds, mean over pairs of "
    "corpora: between any two objectives on one corpus it is below that of either objective on two corpora",
    reads=_V3_READS,
    controls=(
        seeds_alone(_V3_READS, tuple(ACROSS), tuple(f"{one.name}, {other.name}" for one, other in _V3_PAIRS)),
        Control(
            name="two seeds of one objective on one corpus instead of two objectives",
            reads=ACROSS
            | {f"{one.name}, {other.name}": corpus_similarity(one, one, "same") for one, other in _V3_PAIRS},
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
)
def v3(curves: Curves) -> list[Condition]:
    """Share profiles of the stacks that read the text, on several corpora and under different seeds."""
    name = "similarity of one objective on two corpora, less that of two objectives on one corpus"
    return [own_over_others(name, curves)]
