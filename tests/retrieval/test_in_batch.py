"""The in-batch loss against the specification's numbers."""

import pytest
import torch

from infoflow.retrieval import in_batch_loss

S = torch.tensor([[2, 0.5, -1], [0, 1, 0.5], [1, -0.5, 0.25]], dtype=torch.float64)
HARD = torch.tensor([[1.5], [1.25], [-2.0]], dtype=torch.float64)


def test_reference():
    rows = [0.241311, 0.680270, 1.277976]
    assert in_batch_loss(S).item() == pytest.approx(0.733186, abs=1e-6)
    for row, wanted in enumerate(rows):
        assert in_batch_loss(S[row : row + 1], positives=torch.tensor([row])).item() == pytest.approx(wanted, abs=1e-6)
    assert in_batch_loss(torch.cat([S, HARD], dim=1)).item() == pytest.approx(1.039714, abs=1e-6)


def test_an_ignored_passage_is_as_if_it_were_not_there():
    ignore = torch.zeros(3, 4, dtype=torch.bool)
    ignore[:, 3] = True
    scores = torch.cat([S, torch.full_like(HARD, 1e6)], dim=1)
    torch.testing.assert_close(in_batch_loss(scores, ignore=ignore), in_batch_loss(S))


def test_gradients():
    assert torch.autograd.gradcheck(in_batch_loss, S.clone().requires_grad_())
