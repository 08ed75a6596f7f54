"""RAG-Sequence: selects among several answers by the likelihood marginalised over passages."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.objectives import Numbers

Decoding = Literal["thorough", "fast"]


def rescore_hypotheses(
    prior: Numbers,
    log_likelihoods: Numbers,
    generated: Numbers,
    decoding: Decoding = "thorough",
) -> Float[Tensor, " hypothesis"]:
    r"""\(p(y \mid x) = \sum_z \pi(z) \, p(y \mid x, z)\) of each hypothesis.

    Thorough decoding scores every hypothesis under every passage; fast decoding sets \(p(y \mid x, z)\) to 0 if y was
    not in the beam of z, and never reads those likelihoods (they may be NaN). Their choices can differ.

    Args:
        prior: (passage,), \(\pi\), sums to 1.
        log_likelihoods: (passage, hypothesis), \(\log p(y \mid x, z)\) of whole hypotheses.
        generated: Bool (passage, hypothesis), True if y was in the beam of z.
        decoding: "thorough" or "fast".

    Raises:
        UserError: Shapes disagree, the prior is not a distribution, or `decoding` is unknown.

    Source: [@lewis2020rag].
    """
    prior_P, likelihoods_PH = torch.as_tensor(prior), torch.as_tensor(log_likelihoods)
    generated_PH = torch.as_tensor(generated)
    if likelihoods_PH.ndim != 2 or prior_P.shape != likelihoods_PH.shape[:1]:
        raise UserError(
            "log_likelihoods must be (passage, hypothesis) and prior (passage,). "
            f"Got {tuple(likelihoods_PH.shape)} and {tuple(prior_P.shape)}."
        )
    if generated_PH.dtype != torch.bool or generated_PH.shape != likelihoods_PH.shape:
        raise UserError(f"generated must be bool of shape {tuple(likelihoods_PH.shape)}. Got {generated_PH.dtype}.")
    if not torch.isclose(prior_P.sum(), prior_P.new_ones(()), atol=1e-4) or bool((prior_P < 0).any()):
        raise UserError(f"prior must sum to 1: pass softmax output. Got a sum of {float(prior_P.sum()):.4g}.")
    if decoding not in ("thorough", "fast"):
        raise UserError(f'decoding must be "thorough" or "fast". Got {decoding!r}.')
    if decoding == "fast":
        likelihoods_PH = torch.where(generated_PH, likelihoods_PH, float("-inf"))
    return (prior_P[:, None] * likelihoods_PH.exp()).sum(dim=0)
