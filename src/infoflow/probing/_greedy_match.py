"""BERTScore of pairs of token vectors: each token is matched to the nearest token of the other sentence."""

# P pair, C token of a candidate, R token of a reference, D width

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Match(NamedTuple):
    """Scores of pairs."""

    precision: Float[Tensor, " pair"]
    recall: Float[Tensor, " pair"]
    f: Float[Tensor, " pair"]


def greedy_match(
    candidate: Float[Tensor, "pair candidate width"],
    reference: Float[Tensor, "pair reference width"],
    candidate_real: Bool[Tensor, "pair candidate"],
    reference_real: Bool[Tensor, "pair reference"],
    candidate_weight: Float[Tensor, "pair candidate"],
    reference_weight: Float[Tensor, "pair reference"],
) -> Match:
    r"""Precision, recall and F of BERTScore.

    $$ R = \frac{\sum_i w(x_i) \max_j \cos(x_i, y_j)}{\sum_i w(x_i)}, \qquad
       P = \frac{\sum_j w(y_j) \max_i \cos(x_i, y_j)}{\sum_j w(y_j)}, \qquad F = \frac{2 P R}{P + R} $$

    with x the reference's tokens and y the candidate's. A token may match any real token, [CLS] and [SEP] included, as
    in the authors' code; these have weight 0 themselves. Padding is never matched (in the authors' code it has a cosine
    of 0, which counts if all others are negative). A sentence of zero weight gets 0, as does an F of 0/0.

    Source: [@zhang2020bertscore], the authors' code.

    >>> one = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> all_of, weight = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)
    >>> greedy_match(one, one.flip(1), all_of, all_of, weight, weight).f
    tensor([1.])
    """
    cosine_PCR = _unit(candidate) @ _unit(reference).mT
    pairs_PCR = candidate_real.unsqueeze(2) & reference_real.unsqueeze(1)
    cosine_PCR = cosine_PCR.masked_fill(~pairs_PCR, -torch.inf)
    precision = _weighted(cosine_PCR.amax(2), candidate_weight * candidate_real)
    recall = _weighted(cosine_PCR.amax(1), reference_weight * reference_real)
    total = precision + recall
    f = torch.where(total == 0, 0.0, 2 * precision * recall / total)
    return Match(precision=precision, recall=recall, f=f)


def _unit(states: Tensor) -> Tensor:
    return torch.nn.functional.normalize(states.float(), dim=-1)


def _weighted(best: Tensor, weight: Tensor) -> Tensor:
    total = weight.sum(1)
    counted = torch.where(weight > 0, best * weight, 0.0).sum(1)  # 0 · −inf is NaN
    return torch.where(total > 0, counted / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def inverse_document_frequency(rows: Sequence[Sequence[int]]) -> tuple[dict[int, float], float]:
    r"""The weight of each token of these sentences, and the weight of any other token, in nats.

    $$ \mathrm{idf}(w) = \ln \frac{M + 1}{\mathrm{df}(w) + 1} $$

    over M sentences, df of which contain the token.

    Source: [@zhang2020bertscore], the authors' code.
    """
    counts = Counter(token for row in rows for token in set(row))
    num = len(rows) + 1
    return {token: math.log(num / (count + 1)) for token, count in counts.items()}, math.log(num)


def token_weights(
    row: Sequence[int], special: frozenset[int], idf: tuple[Mapping[int, float], float] | None
) -> tuple[list[float], bool]:
    """Token weights of a sentence (special tokens 0), and whether all idf were zero, so that 1 was used instead.

    All idf are zero if every reference has every token; the authors' code then divides by zero and gives NaN.
    """
    ones = [0.0 if token in special else 1.0 for token in row]
    if idf is None or not any(ones):
        return ones, False
    known, unseen = idf
    weights = [one * known.get(token, unseen) for one, token in zip(ones, row, strict=True)]
    return (weights, False) if any(weights) else (ones, True)
