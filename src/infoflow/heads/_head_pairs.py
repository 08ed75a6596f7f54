"""Jensen–Shannon divergence between all pairs of heads, batch by batch."""

import weakref

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey

from ._rows import Rows

Divergences = Float[Tensor, "sentence head head"]
_shared: "weakref.WeakKeyDictionary[Activations, dict[tuple[AttentionKey, bytes, float], Divergences]]" = (
    weakref.WeakKeyDictionary()
)


def head_pairs(
    activations: Activations, key: AttentionKey, chosen: np.ndarray, rows: Rows, smoothing: float
) -> Divergences:
    r"""Divergence between each two heads in each chosen sentence, summed over its queries, in nats.

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
        (chosen sentence, head, likewise), float64; all heads of the layers, in order.

    Source: [@clark2019], the authors' code.
    """
    held = _shared.setdefault(activations, {})
    asked = (key, chosen.tobytes(), smoothing)
    if asked not in held:
        layers = [weights[chosen] for weights in activations.attention[key]]
        admissible = rows.admissible[chosen]
        found = [
            _sentence(torch.cat([layer[b] for layer in layers]), admissible[b], smoothing) for b in range(len(chosen))
        ]
        held[asked] = torch.stack(found).cpu() if found else torch.zeros(0, 0, 0, dtype=torch.float64)
    return held[asked]


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
