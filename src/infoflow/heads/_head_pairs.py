"""Jensen–Shannon divergence between all pairs of heads, batch by batch."""

import weakref
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey

from ._rows import AttentionRows

ByBlock = Mapping[int, Float[np.ndarray, "head head"]]
_shared: "weakref.WeakKeyDictionary[Activations, dict[tuple[AttentionKey, bytes, float], ByBlock]]" = (
    weakref.WeakKeyDictionary()
)


def head_pairs(
    activations: Activations, key: AttentionKey, chosen: np.ndarray, rows: AttentionRows, smoothing: float
) -> ByBlock:
    r"""Divergence between each two heads, summed over the queries of each bootstrap block's chosen sentences, in nats.

    $$ D_{gh} = \sum_{i \in Q} H\Big(\frac{a^g_i + a^h_i}{2}\Big) - \frac{H(a^g_i) + H(a^h_i)}{2}, \quad
       a \leftarrow (1 - ε) a + ε / |K_i| $$

    Computed once for each batch, whatever the number of measures that ask.

    Args:
        activations: The batch.
        key: Which attention; all its layers are compared.
        chosen: Rows of the batch.
        rows: Queries and keys that count.
        smoothing: ε.

    Returns:
        Of each block with a chosen sentence (head, likewise), float64; all heads of the layers, in order.

    Source: [@clark2019], the authors' code.
    """
    held = _shared.setdefault(activations, {})
    asked = (key, chosen.tobytes(), smoothing)
    if asked not in held:
        held[asked] = _by_block(activations, key, chosen, rows.admissible[chosen], smoothing)
    return held[asked]


def _by_block(
    activations: Activations, key: AttentionKey, chosen: np.ndarray, admissible: Tensor, smoothing: float
) -> ByBlock:
    """Added up sentence by sentence: of 1,152 heads, one sentence's matrix takes 11 MB."""
    layers = [weights[chosen] for weights in activations.attention[key]]
    sums: dict[int, np.ndarray] = {}
    for number, block in enumerate(activations.blocks.cpu().numpy()[chosen].tolist()):
        found = _sentence(torch.cat([layer[number] for layer in layers]), admissible[number], smoothing).cpu().numpy()
        sums[block] = sums[block] + found if block in sums else found
    return sums


def _sentence(
    heads: Float[Tensor, "head query key"], admissible: Tensor, smoothing: float
) -> Float[Tensor, "head head"]:
    """All pairs, over the entries that count; float32 logarithms, float64 sums."""
    share = admissible / admissible.sum(1, keepdim=True).clamp(min=1)
    entries = ((1 - smoothing) * heads.float() + smoothing * share)[:, admissible]
    entropy = torch.special.entr(entries).sum(1, dtype=torch.float64)
    result = torch.zeros(len(entries), len(entries), dtype=torch.float64, device=entries.device)
    for g in range(len(entries) - 1):
        mixed = torch.special.entr((entries[g + 1 :] + entries[g]) / 2).sum(1, dtype=torch.float64)
        result[g, g + 1 :] = mixed - (entropy[g + 1 :] + entropy[g]) / 2
    # Rounding leaves a few −1e-7 between equal heads.
    return (result + result.T).clamp(min=0)
