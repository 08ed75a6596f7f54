"""Patterns of attention on repeated text: previous token, duplicate token, induction, prefix matching."""

# B sequence, H head, Q query, K key

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError

PATTERNS = ("previous", "duplicate", "induction")
FORMULAS = ("share", "absolute", "valid rows")
_NO_TOKEN = -1


def pattern_mask(tokens: Int[Tensor, "sequence token"], pattern: str) -> Bool[Tensor, "sequence query key"]:
    """Where a head of a pattern attends.

    - `"previous"`: j = i − 1.
    - `"duplicate"`: an earlier copy of the query's token, $x_j = x_i$ and j < i.
    - `"induction"`: the token after an earlier copy, $x_{j-1} = x_i$ and j − 1 < i.

    Args:
        tokens: (batch, token) ids; −1 for tokens that take no part (special tokens, padding), as query and as key.
        pattern: One of the three.

    Raises:
        UserError: The pattern is unknown.

    Source: the head detector of [@nanda2022]; read in its code.
    """
    if pattern not in PATTERNS:
        raise UserError(f"pattern must be one of {', '.join(PATTERNS)}. Got {pattern}.")
    num = tokens.shape[1]
    part = tokens != _NO_TOKEN
    both = part.unsqueeze(2) & part.unsqueeze(1)
    if pattern == "previous":
        return both & torch.eye(num, dtype=torch.bool, device=tokens.device).roll(-1, 1).tril(-1)
    copies = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).tril(-1) & both
    if pattern == "duplicate":
        return copies
    return torch.nn.functional.pad(copies, (1, 0))[:, :, :-1] & both


def last_only(mask: Bool[Tensor, "sequence query key"]) -> Bool[Tensor, "sequence query key"]:
    """Of each row's targets the right-most."""
    return mask & (mask.flip(2).cumsum(2).flip(2) == 1)


def pattern_sums(
    attention: Float[Tensor, "sequence head query key"],
    mask: Bool[Tensor, "sequence query key"],
    rows: Bool[Tensor, "sequence query"],
    formula: str = "share",
) -> tuple[Float[Tensor, "sequence head"], Float[Tensor, "sequence head"]]:
    r"""Numerator and denominator of a pattern's score, for each sequence.

    $$ \text{share} = \frac{\sum_{ij} A_{ij} M_{ij}}{\sum_{ij} A_{ij}}, \qquad
       \text{absolute} = 1 - T \cdot \mathrm{mean}_{ij} |A_{ij} - M_{ij}| $$

    Rows without a target stay in the denominator of both, so that even a perfect head stays below 1;
    `"valid rows"` is the share over rows that have one.

    Args:
        attention: (batch, head, query, key).
        mask: Targets, see `pattern_mask`.
        rows: Queries that count; T is their number.
        formula: `"share"`, `"absolute"` or `"valid rows"`.

    Source: the head detector of [@nanda2022]; read in its code.
    """
    if formula not in FORMULAS:
        raise UserError(f"formula must be one of {', '.join(FORMULAS)}. Got {formula}.")
    rows = rows & mask.any(2) if formula == "valid rows" else rows
    # Filled, not multiplied: rows of padding may hold NaN.
    kept = attention.masked_fill(~rows[:, None, :, None], 0).double()
    targets = (mask & rows.unsqueeze(2)).unsqueeze(1).double()
    if formula == "absolute":
        distance = (kept - targets).abs().sum((2, 3)) / rows.sum(1, keepdim=True).clamp(min=1)
        return 1 - distance, torch.ones_like(distance)
    return (kept * targets).sum((2, 3)), kept.sum((2, 3))
