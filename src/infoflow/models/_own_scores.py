"""Whether the scores in a family's own attention code are products of queries and keys, up to constants."""

# B sentence, H head, T query token, S key token, d head width

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ._attention import listening
from ._evaluating import evaluating
from ._first_pass import run_tiny, tiny_inputs
from ._own_attention import OwnCall, watching_own_attention

_MASKED = -1000.0  # lower scores belong to hidden keys
_SLACK = 1e-4


def scalings(module: PreTrainedModel, attentions: Sequence[nn.Module]) -> dict[nn.Module, float | None]:
    r"""The factor s of each attention whose scores are $s\, q k^\top + c$, c the same for every sentence.

    None if there is none: DeBERTa's scores also contain products of content and position, which differ between
    sentences. Found from two sentences of equal length, whose scores differ by $s\,(q k^\top - q' k'^\top)$.
    """
    if not attentions:
        return {}
    differences: dict[nn.Module, list[tuple[Tensor, Tensor] | None]] = {one: [] for one in attentions}
    passes: list[list[OwnCall]] = []
    inputs = tiny_inputs(module)
    with evaluating(module), listening(module, {}):  # Falcon's own code would otherwise call SDPA
        for ids in (inputs, {name: one.flip(1) for name, one in inputs.items()}):
            calls: list[OwnCall] = []
            with watching_own_attention(dict.fromkeys(attentions), calls.append):
                run_tiny(module, ids)
            passes.append(calls)
    for first, second in zip(*passes, strict=True):
        differences[first.module].append(_difference(first, second))
    return {one: _scaling(found) for one, found in differences.items()}


def _difference(first: OwnCall, second: OwnCall) -> tuple[Tensor, Tensor] | None:
    """Differences of scores and of products, where no key is hidden."""
    if first.query is None or first.key is None or second.query is None or second.key is None:
        return None
    seen = (first.scores > _MASKED) & (second.scores > _MASKED)
    products = [_product(call.query, call.key) for call in (first, second) if call.query is not None]
    return (first.scores - second.scores)[seen], (products[0] - products[1])[seen]


def _product(query_BHTd: Tensor, key_BGSd: Tensor | None) -> Tensor:
    assert key_BGSd is not None
    return query_BHTd @ key_BGSd.mT  # one key head serves all, or each has its own


def _scaling(found: Sequence[tuple[Tensor, Tensor] | None]) -> float | None:
    parts = [one for one in found if one is not None]
    if len(parts) < len(found) or not parts:
        return None
    scores, products = (torch.cat(side).double() for side in zip(*parts, strict=True))
    scaling = (scores @ products) / (products @ products)
    exact = (scores - scaling * products).norm() <= _SLACK * scores.norm()
    return float(scaling) if bool(exact) else None
