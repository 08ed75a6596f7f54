"""BERTScore's formula: against loops over tokens, and its properties."""

import math

import pytest
import torch

from infoflow.probing import greedy_match


def states(num, seed, width=5):
    return torch.randn(num, width, generator=torch.Generator().manual_seed(seed))


def score(candidate, reference, candidate_weight=None, reference_weight=None, pad=0):
    """One pair, with `pad` rows of padding behind either sentence."""
    weights = [candidate_weight or [1.0] * len(candidate), reference_weight or [1.0] * len(reference)]
    padded = [torch.cat([one, 9.0 * states(pad, 77, one.shape[1])])[None] for one in (candidate, reference)]
    real = [torch.tensor([[True] * len(one) + [False] * pad]) for one in (candidate, reference)]
    heavy = [torch.tensor([[*one, *[1.0] * pad]]) for one in weights]
    match = greedy_match(*padded, *real, *heavy)
    return float(match.precision), float(match.recall), float(match.f)


def slow_score(candidate, reference, candidate_weight, reference_weight):
    def cosine(a, b):
        return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))

    def one_side(from_rows, to_rows, weights):
        best = [max(cosine(a, b) for b in to_rows) for a in from_rows]
        return sum(w * s for w, s in zip(weights, best, strict=True)) / sum(weights)

    precision = one_side(candidate, reference, candidate_weight)
    recall = one_side(reference, candidate, reference_weight)
    return precision, recall, 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("pad", [0, 3])
def test_scores_agree_with_definition(pad):
    a, b, wa, wb = states(4, 1), states(6, 2), [0.0, 1.3, 0.2, 0.0], [0.0, 0.5, 2.0, 0.1, 1.0, 0.0]
    assert score(a, b, wa, wb, pad) == pytest.approx(slow_score(a, b, wa, wb), abs=1e-5)


def test_negative_cosines_are_not_raised_by_padding():
    a = torch.tensor([[1.0, 0.0]])
    assert score(a, -a) == pytest.approx((-1, -1, -1))
    padded = greedy_match(
        torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), -a[None], torch.tensor([[True, False]]), torch.tensor([[True]]),
        torch.ones(1, 2), torch.ones(1, 1),
    )  # fmt: skip
    assert float(padded.recall) == pytest.approx(-1)


def test_properties():
    a, b = states(4, 1), states(6, 2)
    assert score(a, a) == pytest.approx((1, 1, 1))
    assert score(a, a[[2, 0, 3, 1]]) == pytest.approx((1, 1, 1))  # order says nothing
    precision, recall, f = score(a, b)
    assert score(b, a) == pytest.approx((recall, precision, f), abs=1e-6)
    assert score(3 * a, b * torch.rand(6, 1).add(0.5)) == pytest.approx((precision, recall, f), abs=1e-6)
    assert score(a, b, [0.0] * 4)[0] == 0
