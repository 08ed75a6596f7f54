"""The share of the source in a prediction after every decoder layer, and how well such a score detects translations."""

# T target position, S source token, L decoder layer, N translation

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS
from infoflow.heads import Place
from infoflow.results import linear_replicates


def source_shares(mixing: Mapping[Place, Float[Tensor, "query key"]]) -> Float[Tensor, "layer position"]:
    r"""The share of the source in each target position's state after every decoder layer, by ALTI+.

    $$ r \leftarrow A_l\, r, \qquad r_j \leftarrow (1 - c_{lj})\, r_j + c_{lj}, \qquad c_{lj} = \sum_i C_{l,ji} $$

    $A_l$ is the map of layer l's self-attention and $C_l$ that of its cross-attention, whose rows sum to 1 minus the
    share of the residual. Rows of the encoder's maps sum to 1, so that the encoder only distributes the share over
    source tokens.

    Args:
        mixing: One sentence's maps, from `alti_contributions`.

    Source: [@ferrando2022plus].
    """
    layers = sorted(layer for stack, kind, layer in mixing if (stack, kind) == ("decoder", "cross"))
    share_T = torch.zeros(mixing["decoder", "cross", layers[0]].shape[0], dtype=torch.float64)
    found = []
    for layer in layers:
        across_T = mixing["decoder", "cross", layer].double().cpu().sum(1)
        share_T = mixing["decoder", "self", layer].double().cpu() @ share_T
        share_T = (1 - across_T) * share_T + across_T
        found.append(share_T)
    return torch.stack(found)


class Detection(NamedTuple):
    """The AUC of a score that is low where detection should succeed, and its value without each block of sentences."""

    value: float
    without_block: Float[np.ndarray, " block"]

    @property
    def replicates(self) -> np.ndarray:
        return linear_replicates(self.value, self.without_block)

    @classmethod
    def of(
        cls,
        low: Float[np.ndarray, " detached"],
        high: Float[np.ndarray, " faithful"],
        low_blocks: Int[np.ndarray, " detached"],
        high_blocks: Int[np.ndarray, " faithful"],
    ) -> "Detection":
        r"""$P(s_- < s_+) + \tfrac12 P(s_- = s_+)$ for a detached and a faithful translation."""
        wins = (low[:, None] < high) + 0.5 * (low[:, None] == high)
        of_low, of_high = (np.eye(NUM_BLOCKS)[blocks] for blocks in (low_blocks, high_blocks))
        won, pairs = of_low.T @ wins @ of_high, np.outer(of_low.sum(0), of_high.sum(0))
        left = [every.sum() - every.sum(0) - every.sum(1) + np.diag(every) for every in (won, pairs)]
        with np.errstate(invalid="ignore", divide="ignore"):
            without = np.where(left[1] > 0, left[0] / left[1], np.nan)
        return cls(float(wins.mean()), without)
