"""How often a head looks a fixed number of tokens away."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import UserError

from ._rows import Array, Attention, AttentionRows, check_attention, largest

DENOMINATORS = ("valid", "all")


def offset_scores(
    attention: Attention, valid: Array, offsets: Sequence[int] = (-1, 1), denominator: str = "valid"
) -> Float[Tensor, "layer head offset"]:
    r"""Share of queries whose largest weight lies at a given offset.

    $$ s_o(h) = \frac{1}{|Q_o|} \sum_{i \in Q_o} \big[ \arg\max_{j \in K} a^h_{ij} = i + o \big] $$

    K are the valid tokens. With `denominator="valid"`, $Q_o$ are the valid queries i for which i + o is a valid key;
    with `"all"` all valid queries, which keeps even a perfect previous-token head below 1 (7/8 with 8 tokens).
    Of equal weights the first key counts. A head is positional if the share is at least 0.9 [@voita2019heads].

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        offsets: Key index less query index; −1 is the previous token.
        denominator: `"valid"` or `"all"`.

    Returns:
        Shares in [0, 1]; NaN where no query counts.

    Raises:
        UserError: A shape is wrong, or the denominator is unknown.

    Source: [@voita2019heads].

    >>> previous = torch.eye(4).roll(-1, 1)[None, None, None]
    >>> offset_scores(previous, torch.ones(1, 4, dtype=torch.bool))
    tensor([[[1., 0.]]])
    """
    check_offsets(offsets, denominator)
    weights, mask = check_attention(attention, valid)
    rows = AttentionRows.of_tokens(mask)
    counts = offset_counts(rows, offsets, denominator).sum(0)
    sums = torch.stack([offset_hits(layer, rows, offsets).sum(0) for layer in weights])
    return (sums / counts).to(weights.dtype)


def check_offsets(offsets: Sequence[int], denominator: str) -> None:
    if denominator not in DENOMINATORS:
        raise UserError(f'denominator must be "valid" or "all". Got {denominator}.')
    if len(offsets) == 0:
        raise UserError("offsets must name at least one offset, for example (-1, 1). Got none.")


def offset_hits(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows, offsets: Sequence[int]
) -> Float[Tensor, "sentence head offset"]:
    """Number of queries whose largest weight lies at each offset."""
    chosen = largest(weights, rows)[1]
    offset = rows.offset.unsqueeze(1).expand(weights.shape).gather(3, chosen.unsqueeze(3)).squeeze(3)
    counted = rows.queries.unsqueeze(1)
    return torch.stack([((offset == o) & counted).sum(2) for o in offsets], dim=2).double()


def offset_counts(rows: AttentionRows, offsets: Sequence[int], denominator: str) -> Float[Tensor, "sentence offset"]:
    """Number of queries that could have hit each offset."""
    return torch.stack([_able(rows, o, denominator).sum(1) for o in offsets], dim=1).double()


def offset_chances(rows: AttentionRows, offsets: Sequence[int]) -> Float[Tensor, "sentence offset"]:
    """Expected number of hits where each query picks one of its keys at random."""
    chance = 1 / rows.num_keys.clamp(min=1).double()
    return torch.stack([(_able(rows, o, "valid") * chance).sum(1) for o in offsets], dim=1)


def _able(rows: AttentionRows, offset: int, denominator: str) -> Bool[Tensor, "sentence query"]:
    return rows.queries if denominator == "all" else (rows.admissible & (rows.offset == offset)).any(2)
