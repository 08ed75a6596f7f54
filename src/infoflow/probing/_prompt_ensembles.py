"""Several prompts as one: the mean of their log-probabilities, learned weights, or the best prompt alone."""

# R view (a lens and a layer), P prompt, N fact, C candidate

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError

from ._first_choice import first_choice

Ensemble = Literal["uniform", "best", "optimised"]
ENSEMBLES: tuple[Ensemble, ...] = ("uniform", "best", "optimised")
_STEPS, _RATE = 100, 0.1


def ensemble_scores(
    log_shares: Float[Tensor, "view prompt fact candidate"], weights: Float[Tensor, "view prompt"]
) -> Float[Tensor, "view fact candidate"]:
    r"""$$ s_c = \sum_p w_p \log P(c \mid \mathrm{prompt}_p) $$

    A prompt's normalisation is one constant for all candidates, so it cannot change which candidate is highest.

    Source: [@jiang2020].
    """
    return torch.einsum("rp,rpnc->rnc", weights, log_shares)


def uniform_weights(views: int, prompts: int) -> Float[Tensor, "view prompt"]:
    """Every prompt counts the same."""
    return torch.full((views, prompts), 1 / prompts)


def best_prompt(
    log_shares: Float[Tensor, "view prompt fact candidate"], gold: Int[Tensor, " fact"]
) -> Float[Tensor, "view prompt"]:
    """All weight on the prompt with the most right answers in each view; the first one wins ties.

    Source: top-1 of [@jiang2020].
    """
    _require_facts(gold)
    right = first_choice(log_shares, gold).sum(dim=-1)
    return torch.nn.functional.one_hot(right.argmax(dim=-1), log_shares.shape[1]).float()


def optimised_weights(
    log_shares: Float[Tensor, "view prompt fact candidate"], gold: Int[Tensor, " fact"]
) -> Float[Tensor, "view prompt"]:
    r"""Weights, positive and summing to 1, that maximise the likelihood of the right objects.

    $$ \max_\theta \sum_n \log \mathrm{softmax}_c \Big( \sum_p w_p \log P(c \mid p, n) \Big)_{y_n}, \qquad
       w = \mathrm{softmax}(\theta) $$

    θ starts at zero, so weights start uniform; all views are learned at once, by 100 steps of Adam at a rate of 0.1.

    Source: [@jiang2020].
    """
    _require_facts(gold)
    views, prompts = log_shares.shape[:2]
    right = gold.expand(views, -1).unsqueeze(-1)
    with torch.inference_mode(False), torch.enable_grad():
        values = log_shares.clone()
        theta = torch.zeros(views, prompts, requires_grad=True)
        optimiser = torch.optim.Adam([theta], lr=_RATE, foreach=False)
        for _ in range(_STEPS if prompts > 1 else 0):
            optimiser.zero_grad()
            scores = ensemble_scores(values, theta.softmax(dim=-1))
            # Views are independent: each has its own mean, and Adam its own step.
            loss = -scores.log_softmax(dim=-1).gather(-1, right).mean(dim=1).sum()
            loss.backward()
            optimiser.step()
        return theta.detach().softmax(dim=-1)


def _require_facts(gold: Tensor) -> None:
    if len(gold) == 0:
        raise UserError("Prompts are chosen and weighed by training facts. Got none.")
