"""Heads that point to the rarest token of a sentence."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError, as_tensor, as_written

from ._rows import Array, Attention, AttentionRows, check_attention, largest

AVERAGES = ("per_query", "per_sentence")


def rare_token_score(
    attention: Attention, valid: Array, ranks: Array, top: int = 500, rarest: int = 1, average: str = "per_query"
) -> Float[Tensor, "layer head"]:
    r"""Share of queries whose largest weight lies on one of the sentence's rarest tokens.

    Only sentences count whose rarest valid token lies outside the `top` most frequent; any position of a rarest
    type counts as a hit. Compare with the score of shuffled ranks.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        ranks: (batch, token) frequency rank of each token in the training corpus, 1 = most frequent.
        top: Sentences of nothing but the `top` most frequent tokens are left out.
        rarest: Number of rarest types that count as a hit.
        average: `"per_query"` pools all queries; `"per_sentence"` averages sentences (the paper does not say).

    Returns:
        Share in [0, 1]; NaN where no sentence counts.

    Raises:
        UserError: A shape is wrong, `rarest` is below 1, or the average is unknown.

    Source: [@voita2019heads].
    """
    weights, mask = check_attention(attention, valid)
    rank = as_tensor(ranks)
    if rank.shape != mask.shape:
        raise UserError(
            f"ranks must have the shape of valid, {as_written(list(mask.shape))}. Got {as_written(list(rank.shape))}."
        )
    if rarest < 1 or average not in AVERAGES:
        raise UserError(
            f'rarest must be at least 1 and average "per_query" or "per_sentence". Got {rarest} and {average}.'
        )
    kept = rank.masked_fill(~mask, 0).amax(1) > top
    rows = AttentionRows.of_tokens(mask & kept.unsqueeze(1))
    target = _rarest_positions(rank, mask, rarest)
    hits = torch.stack([_hits(layer, rows, target) for layer in weights])  # layer, sentence, head
    counts = rows.queries.sum(1)
    if average == "per_query":
        return (hits.sum(1) / counts.sum()).to(weights.dtype)
    return (hits[:, kept] / counts[kept, None]).mean(1).to(weights.dtype)


def _rarest_positions(
    ranks: Int[Tensor, "sentence token"], valid: Bool[Tensor, "sentence token"], rarest: int
) -> Bool[Tensor, "sentence token"]:
    """Valid tokens whose type is among the sentence's `rarest` rarest."""
    target = torch.zeros_like(valid)
    for row, (rank, mask) in enumerate(zip(ranks, valid, strict=True)):
        types = rank[mask].unique()  # sorted: the rarest last
        target[row] = mask & torch.isin(rank, types[-rarest:])
    return target


def _hits(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows, target: Bool[Tensor, "sentence key"]
) -> Float[Tensor, "sentence head"]:
    chosen = largest(weights, rows)[1]
    hit = target.unsqueeze(1).expand(-1, chosen.shape[1], -1).gather(2, chosen)
    return (hit & rows.queries.unsqueeze(1)).sum(2).double()
