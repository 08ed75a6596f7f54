"""The marginal likelihood against its definition, the specification's numbers, and finite differences."""

import math

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.retrieval import document_posterior, marginal_log_likelihood, rescore_hypotheses

SCORES = torch.tensor([[1.2, 0.3, -0.5]], dtype=torch.float64)
TOKENS = torch.tensor([[[0.9, 0.4], [0.1, 0.8], [0.2, 0.3]]], dtype=torch.float64).log()
LEVELS = ["sequence", "token"]


def by_hand(scores, logs, level):
    """The definition with loops, of one query."""
    prior = [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]
    likely = [[math.exp(one) for one in row] for row in logs]
    if level == "sequence":
        return math.log(sum(p * math.prod(row) for p, row in zip(prior, likely, strict=True)))
    columns = zip(*likely, strict=True)
    return sum(math.log(sum(p * one for p, one in zip(prior, column, strict=True))) for column in columns)


@pytest.mark.parametrize(("level", "wanted"), [("sequence", -1.370876), ("token", -1.197982)])
def test_reference_likelihood(level, wanted):
    assert marginal_log_likelihood(SCORES, TOKENS, level).item() == pytest.approx(wanted, abs=1e-6)
    assert by_hand(SCORES[0].tolist(), TOKENS[0].tolist(), level) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("level", "wanted"), [("sequence", [0.262997, -0.175213, -0.087784]), ("token", [0.175333, -0.053081, -0.122252])]
)
def test_reference_gradient(level, wanted):
    scores = SCORES.clone().requires_grad_()
    marginal_log_likelihood(scores, TOKENS, level).sum().backward()
    assert scores.grad[0].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("level", "wanted"), [("sequence", [0.892223, 0.080611, 0.027166]), ("token", [0.716893, 0.229284, 0.053823])]
)
def test_reference_posterior(level, wanted):
    assert document_posterior(SCORES, TOKENS, level)[0].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("level", "wanted"), [("sequence", -1.276307), ("token", -1.064715)])
def test_reference_without_the_null_passage(level, wanted):
    there = torch.tensor([[True, True, False]])
    assert marginal_log_likelihood(SCORES, TOKENS, level, there).item() == pytest.approx(wanted, abs=1e-6)


def test_reference_rag():
    scores = torch.tensor([[0.6, 0.4]], dtype=torch.float64).log()
    logs = torch.tensor([[[0.9, 0.1], [0.2, 0.9]]], dtype=torch.float64).log()
    assert marginal_log_likelihood(scores, logs).exp().item() == pytest.approx(0.126)
    assert marginal_log_likelihood(scores, logs, "token").exp().item() == pytest.approx(0.2604)
    assert document_posterior(scores, logs)[0].tolist() == pytest.approx([0.428571, 0.571429], abs=1e-6)
    for level in LEVELS:
        assert marginal_log_likelihood(scores, logs[:, :, :1], level).exp().item() == pytest.approx(0.62)


@pytest.mark.parametrize("level", LEVELS)
def test_agrees_with_the_definition(level):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    logs = -torch.rand(5, 4, 3, generator=generator, dtype=torch.float64) * 3
    found = marginal_log_likelihood(scores.numpy(), logs.numpy(), level)
    wanted = [by_hand(scores[query].tolist(), logs[query].tolist(), level) for query in range(5)]
    assert found.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_gradients_are_those_of_finite_differences(level):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    logs = (-torch.rand(2, 3, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    there = torch.tensor([[True, True, True], [True, False, True]])
    tokens = torch.tensor([[True, True], [True, False]])
    assert torch.autograd.gradcheck(lambda s, g: marginal_log_likelihood(s, g, level, there, tokens), (scores, logs))


def test_gradient_by_a_score_is_posterior_less_prior():
    scores = SCORES.clone().requires_grad_()
    marginal_log_likelihood(scores, TOKENS).sum().backward()
    torch.testing.assert_close(scores.grad, document_posterior(SCORES, TOKENS) - SCORES.softmax(dim=1))


def test_the_likelihood_is_what_the_reader_gives_less_a_divergence():
    """log p = Σ ρ log p(y|z) − KL(ρ‖π), exactly."""
    posterior, prior = document_posterior(SCORES, TOKENS), SCORES.softmax(dim=1)
    reader = (posterior * TOKENS.sum(dim=2)).sum()
    divergence = (posterior * (posterior / prior).log()).sum()
    assert (reader - divergence).item() == pytest.approx(marginal_log_likelihood(SCORES, TOKENS).item())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("filler", [float("nan"), float("inf"), -float("inf"), 7.0])
def test_masked_entries_may_hold_anything(level, filler):
    scores = torch.tensor([[1.2, filler, 0.3, -0.5]], dtype=torch.float64, requires_grad=True)
    logs = torch.full((1, 4, 3), filler, dtype=torch.float64)
    logs[:, [0, 2, 3], :2] = TOKENS
    logs.requires_grad_()
    there, tokens = torch.tensor([[True, False, True, True]]), torch.tensor([[True, True, False]])
    found = marginal_log_likelihood(scores, logs, level, there, tokens)
    torch.testing.assert_close(found, marginal_log_likelihood(SCORES, TOKENS, level))
    found.sum().backward()
    assert scores.grad[0, 1] == 0
    assert torch.isfinite(scores.grad).all()
    assert torch.isfinite(logs.grad).all()
    assert (logs.grad[:, 1] == 0).all()
    assert (logs.grad[:, :, 2] == 0).all()
    posterior = document_posterior(scores, logs, level, there, tokens)
    assert posterior[0, 1] == 0
    torch.testing.assert_close(posterior[:, [0, 2, 3]], document_posterior(SCORES, TOKENS, level))


def test_the_order_of_candidates_does_not_matter():
    order = [2, 0, 1]
    torch.testing.assert_close(
        marginal_log_likelihood(SCORES[:, order], TOKENS[:, order]), marginal_log_likelihood(SCORES, TOKENS)
    )


def test_one_token_makes_the_levels_equal():
    one = TOKENS[:, :, :1]
    torch.testing.assert_close(marginal_log_likelihood(SCORES, one), marginal_log_likelihood(SCORES, one, "token"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"candidates": np.zeros((1, 3), dtype=bool)}, "null passage"),
        ({"candidates": np.ones((1, 2), dtype=bool)}, "candidates"),
        ({"tokens": np.ones((1, 2))}, "tokens"),
        ({"scores": SCORES[:, :2]}, "scores"),
    ],
)
def test_bad_input_is_told(changes, told):
    with pytest.raises(UserError, match=told):
        marginal_log_likelihood(**{"scores": SCORES, "log_likelihoods": TOKENS, **changes})


PRIOR = torch.tensor([0.55, 0.45])
LIKELY = torch.tensor([[0.40, 0.35, 0.05, 0.02], [0.02, 0.30, 0.35, 0.31]])
BEAMS = torch.tensor([[True, True, False, False], [False, False, True, True]])


def test_thorough_and_fast_decoding_choose_differently():
    thorough = rescore_hypotheses(PRIOR, LIKELY.log(), BEAMS)
    fast = rescore_hypotheses(PRIOR, LIKELY.log(), BEAMS, "fast")
    assert thorough.tolist() == pytest.approx([0.229, 0.3275, 0.185, 0.1505])
    assert fast.tolist() == pytest.approx([0.220, 0.1925, 0.1575, 0.1395])
    assert (thorough.argmax(), fast.argmax()) == (1, 0)


def test_fast_decoding_never_looks_at_what_was_not_generated():
    logs = torch.where(BEAMS, LIKELY.log(), float("nan"))
    torch.testing.assert_close(
        rescore_hypotheses(PRIOR, logs, BEAMS, "fast"), rescore_hypotheses(PRIOR, LIKELY.log(), BEAMS, "fast")
    )


def test_a_prior_must_be_one():
    with pytest.raises(UserError, match="sum to 1"):
        rescore_hypotheses(PRIOR * 2, LIKELY.log(), BEAMS)
