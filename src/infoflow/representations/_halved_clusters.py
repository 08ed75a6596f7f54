"""Information in a small sample of clustered states, and the error from fitting centres to the counted states."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from ._clusters import FOLDS, cluster, nearest
from ._information_estimate import InformationEstimate, corrected_information, estimate_information, optimism_of


@dataclass(frozen=True, slots=True, eq=False)
class HalvedClusters:
    """Two clusterings of all states, one fitted to the even bootstrap blocks, one to the odd ones.

    Centres also fit the noise of their own states. The difference between blocks that a clustering was fitted to and
    the other blocks shows how much (`InformationEstimate.optimism`).
    """

    labels: Int[np.ndarray, "clustering token"]
    blocks: Int[np.ndarray, " token"]

    @classmethod
    def fitted(
        cls, states: Float32[Tensor, "token width"], clusters: int, blocks: Int[np.ndarray, " token"], seed: int = 0
    ) -> "HalvedClusters":
        """At most `clusters` clusters, and at most one for each state of a half."""
        halves = [np.flatnonzero(blocks % FOLDS == fold) for fold in range(FOLDS)]
        if min(map(len, halves)) < 2:  # the states of a single text
            halves = [np.arange(len(blocks))] * FOLDS
        num = min(clusters, *map(len, halves))
        centres = [cluster(states[torch.from_numpy(half)], num, seed).centres for half in halves]
        return cls(np.stack([nearest(states, each).labels.numpy() for each in centres]), blocks)

    def of(self, rows: Int[np.ndarray, " chosen"]) -> "HalvedClusters":
        """The same clusterings, restricted to `rows`."""
        return HalvedClusters(self.labels[:, rows], self.blocks[rows])

    def corrected(self, tokens: Int[np.ndarray, " token"]) -> float:
        """The information about tokens, averaged over both clusterings and corrected for the number of tokens."""
        return float(np.mean([corrected_information(own, tokens, self.blocks) for own in self.labels]))

    def estimate(self, tokens: Int[np.ndarray, " token"]) -> InformationEstimate:
        """The information about tokens, averaged over both clusterings."""
        found = [estimate_information(own, tokens, self.blocks) for own in self.labels]
        names = [field.name for field in fields(InformationEstimate) if field.name != "optimism"]
        means = {name: np.mean([getattr(each, name) for each in found], axis=0) for name in names}
        means["tail"] = float(means["tail"])
        gains = [
            optimism_of(own, tokens, self.blocks, self.blocks % FOLDS == fold) for fold, own in enumerate(self.labels)
        ]
        return InformationEstimate(**means, optimism=float(np.mean(gains)))
