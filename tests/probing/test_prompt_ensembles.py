"""Prompts put together: against loops, and what training facts decide."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.probing import best_prompt, optimised_weights


def log_shares(views=2, prompts=3, facts=6, candidates=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(views, prompts, facts, candidates, generator=generator).log_softmax(-1)


def test_the_best_prompt_has_most_right_answers():
    values, gold = log_shares(), torch.tensor([0, 1, 2, 3, 0, 1])
    weights = best_prompt(values, gold)
    for r in range(2):
        right = [sum(int(values[r, p, n].argmax() == gold[n]) for n in range(6)) for p in range(3)]
        assert weights[r].tolist() == [float(p == right.index(max(right))) for p in range(3)]


def _loss(values, weights, gold):
    scores = (weights[:, :, None, None] * values).sum(dim=1).log_softmax(-1)
    return -scores.gather(-1, gold.expand(len(values), -1)[..., None]).mean(dim=(1, 2))


def test_weights_lower_the_loss_and_find_the_telling_prompt():
    gold = torch.tensor([0, 1, 2, 3, 0, 1])
    values = log_shares()
    values[:, 1] = (4.0 * torch.nn.functional.one_hot(gold, 4)).log_softmax(-1)
    weights = optimised_weights(values, gold)
    torch.testing.assert_close(weights.sum(1), torch.ones(2))
    assert weights.argmax(1).tolist() == [1, 1]
    assert bool((_loss(values, weights, gold) < _loss(values, torch.full((2, 3), 1 / 3), gold)).all())


def test_each_view_is_learned_as_if_it_were_alone():
    values, gold = log_shares(), torch.tensor([0, 1, 2, 3, 0, 1])
    alone = torch.cat([optimised_weights(values[r : r + 1], gold) for r in range(2)])
    torch.testing.assert_close(optimised_weights(values, gold), alone)


def test_without_training_facts_nothing_is_learned():
    for learn in (best_prompt, optimised_weights):
        with pytest.raises(UserError, match="Training facts"):
            learn(log_shares(facts=0), torch.zeros(0, dtype=torch.long))
