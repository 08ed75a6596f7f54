"""One layer as a reference for others: its statistics are computed once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from infoflow.foundation import stream
from infoflow.results import estimate

from ._layer_pair import LayerPair
from ._layer_space import LayerSpace
from ._paired_distance import BlockGroups
from ._space_metrics import space_values


class ReferenceLayer:
    """States of one layer, and their similarity to other states of the same tokens.

    Metrics are those of `SpaceSimilarity`, except RSA; `procrustes` is the cosine of its angle here, so that all are
    similarities, 1 for equal spaces.

    Args:
        states: (token, width), of the reference.
        blocks: (token,), bootstrap block of each token.
    """

    def __init__(self, states: Float[np.ndarray, "token width"], blocks: Int[np.ndarray, " token"]) -> None:
        self._groups = BlockGroups.of(blocks, states.shape[1])
        self._space = LayerSpace(states, self._groups)
        self._order = torch.from_numpy(stream("similarity-baseline").permutation(len(states)))

    def similarities(
        self, states: Float[np.ndarray, "token width"], metrics: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Estimate columns by metric; the baseline shuffles the tokens."""
        space = LayerSpace(states, self._groups)
        meeting, shuffled = LayerPair.of(space, self._space), LayerPair.shuffled(space, self._space, self._order)
        return {metric: self._columns(metric, meeting, shuffled) for metric in metrics}

    def values(self, states: Float[np.ndarray, "token width"], metrics: Sequence[str]) -> dict[str, float]:
        """Only the similarity, by metric."""
        space = LayerSpace(states, self._groups)
        # Tokens in their own order, as a shuffled pair, so that no group is left out.
        meeting = LayerPair.shuffled(space, self._space, torch.arange(len(states)))
        return {metric: float(_similarity(metric, meeting)[0]) for metric in metrics}

    def _columns(self, metric: str, meeting: LayerPair, shuffled: LayerPair) -> dict[str, Any]:
        values = _similarity(metric, meeting)
        replicates = self._groups.replicates(values)
        ends = self._groups.interval(values[0], values)
        baseline = float(_similarity(metric, shuffled)[0])
        return estimate(float(values[0]), replicates.round(5), baseline, len(self._groups.order), ends=ends)


def _similarity(metric: str, meeting: LayerPair) -> Float[np.ndarray, " leave_out"]:
    values = space_values(metric, meeting)
    return np.cos(values) if metric == "procrustes" else values
