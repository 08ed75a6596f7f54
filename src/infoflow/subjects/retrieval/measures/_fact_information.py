"""The information that clusters of states at the mask carry about the token to predict."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.representations import corrected_information, discretize, estimate_information

from ._blocks import fact_blocks
from ._groups import EVERY_WEIGHT, fact_groups
from ._inputs import FactInputs
from ._moved_objects import moved_objects

_ROWS_PER_CLUSTER = 20
LEAST_QUESTIONS = 2 * _ROWS_PER_CLUSTER
"""Minimum number of questions: enough for two clusters."""
_CONTROLS = 5  # permutations behind the baseline


def information_rows(states: Tensor, inputs: FactInputs, seed: int = 0) -> Iterator[dict[str, Any]]:
    r"""Rows of the metric information: \(I(\text{cluster}; o_1)\) in nats, of each kind of fact and each state.

    States at the first mask are clustered, one cluster per twenty questions; o_1 is the first token of the object. The
    estimate is corrected for the number of questions (`estimate_information`), and its interval includes possible
    remaining bias. The baseline is the mean over five tables with the objects permuted within each relation: it
    contains the information from the type of the object, and the same bias. The difference is about the fact.

    Args:
        states: (state, row, target, width), at `inputs.masks`.
        inputs: What was read.
        seed: Seeds clusters and permutations.

    Raises:
        UserError: There are fewer than forty questions.
    """
    clusters = len(inputs) // _ROWS_PER_CLUSTER
    if clusters < 2:
        raise UserError(
            f"Clusters of states need at least {LEAST_QUESTIONS} questions. Got {len(inputs)}.\nUse more facts."
        )
    rows, blocks = np.arange(len(inputs)), fact_blocks(inputs.facts)
    tokens = inputs.candidates[rows, inputs.answers, 0]
    moved = [inputs.candidates[rows, moved_objects(inputs, seed + draw), 0] for draw in range(_CONTROLS)]
    for layer, of_layer in enumerate(states[:, :, 0]):
        labels = discretize(of_layer.float(), clusters, seed).numpy()
        for group in (one for one in fact_groups(inputs.facts) if one.weight == EVERY_WEIGHT):
            part, here = labels[group.rows], blocks[group.rows]
            found = estimate_information(part, tokens[group.rows], here)
            control = np.mean([corrected_information(part, one[group.rows], here) for one in moved])
            numbers = found.columns(float(control), len(part), units=len(np.unique(here)))
            keys = {"facts": group.facts, "weight": group.weight, "layer": layer, "metric": "information"}
            yield {**keys, "document": inputs.document, "lens": "clusters", "place": "mask", **numbers}
