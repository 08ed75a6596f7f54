"""How much each head's attention changes by tuning, on the same texts."""

# B row, H head, Q query, K key, L layer, N bootstrap block (64)

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS
from infoflow.models import Model, keys_stack, tap

from ._body import run_body
from ._task_part import TaskBatch, TaskPart

Site = tuple[str, str, int]
"""(stack, kind, layer)."""


def js_changes(
    before: Model, after: Sequence[Model], part: TaskPart
) -> list[dict[Site, Float[np.ndarray, "block head 2"]]]:
    r"""For each tuned model, by bootstrap block: the Jensen–Shannon divergence summed over queries, and their number.

    $$ D_h = \frac{1}{|Q|} \sum_{i \in Q} H\Big(\frac{a_i + b_i}{2}\Big) - \frac{H(a_i) + H(b_i)}{2} $$

    in nats, at most ln 2; a and b are a head's weights before and after tuning, over all tokens but padding. Special
    tokens are included, since tuning changes their attention. Heads are compared one by one, so both models must have
    the same heads.
    """
    sums: list[dict[Site, np.ndarray]] = [{} for _ in after]
    for batch in part.batches_within(_budget(before, part)):
        then = _weights(before, batch)
        blocks = np.repeat(part.blocks[batch.index], batch.rows_each)
        for own, one in zip(sums, after, strict=True):
            now = _weights(one, batch)
            for site, first in then.items():
                queries, keys = batch.real[site[0]], batch.real[keys_stack(site[0], site[1])]
                each_BH = _divergence(first, now[site], queries, keys).double().cpu().numpy()
                found = own.setdefault(site, np.zeros((NUM_BLOCKS, each_BH.shape[1], 2)))
                np.add.at(found[..., 0], blocks, each_BH)
                np.add.at(found[..., 1], blocks, queries.sum(1, keepdim=True).double().cpu().numpy())
    return sums


def _budget(model: Model, part: TaskPart) -> int:
    """Padded tokens per batch such that two models' attention weights fit into the byte budget."""
    heads = sum(one.num_heads for one in model.anatomy.attentions())
    longest = int(np.max(part.rows.lengths))
    return min(part.options.tokens_per_batch, max(longest, part.options.attention_bytes // (8 * heads * longest)))


def _weights(model: Model, batch: TaskBatch) -> dict[Site, Float[Tensor, "row head query key"]]:
    with torch.inference_mode(), tap(model, attention=True) as seen:
        run_body(model, batch)
        found: Mapping = seen.attention
    return {(*key, layer): weights for key, layers in found.items() for layer, weights in enumerate(layers)}


def _divergence(
    a_BHQK: Float[Tensor, "row head query key"],
    b_BHQK: Float[Tensor, "row head query key"],
    queries: Bool[Tensor, "row query"],
    keys: Bool[Tensor, "row key"],
) -> Float[Tensor, "row head"]:
    """Divergence summed over the queries of each row."""
    a_BHQK, b_BHQK = (one.masked_fill(~keys[:, None, None], 0.0) for one in (a_BHQK, b_BHQK))
    mixed, a, b = (torch.special.entr(one).sum(-1) for one in ((a_BHQK + b_BHQK) / 2, a_BHQK, b_BHQK))
    # Rounding leaves -1e-8 between equal weights.
    return ((mixed - (a + b) / 2).clamp(min=0) * queries[:, None]).sum(-1)
