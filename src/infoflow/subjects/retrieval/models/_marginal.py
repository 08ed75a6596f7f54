r"""The likelihood of an answer marginalised over passages, its posterior over passages, and the utility of a passage.

Q queries, C candidates, J target tokens. With the prior \(\pi = \mathrm{softmax}_{z} f(x, z)\) over a query's
candidates,

| level    | \(\log p(y \mid x)\)                                     |
|----------|----------------------------------------------------------|
| sequence | \(\log \sum_z \pi(z) \prod_j p(y_j \mid z, x)\)          |
| token    | \(\sum_j \log \sum_z \pi(z) \, p(y_j \mid z, x)\)        |

Equal for one token; otherwise neither bounds the other. Sequence is REALM's paper and RAG-Sequence, token is REALM's
released code and RAG-Token ([@guu2020realm], [@lewis2020rag]).
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.objectives import Numbers

Level = Literal["sequence", "token"]
_NOTHING = float("-inf")


def marginal_log_likelihood(
    scores: Numbers,
    log_likelihoods: Numbers,
    level: Level = "sequence",
    candidates: Numbers | None = None,
    tokens: Numbers | None = None,
) -> Float[Tensor, " query"]:
    r"""\(\log p(y \mid x)\) of each query, in nats; differentiable in both arguments.

    The gradient with respect to a score is \(\rho(z) - \pi(z)\) at the sequence level, with the posterior \(\rho\) of
    `document_posterior`; that with respect to a log-likelihood is \(\rho(z)\).

    Args:
        scores: (query, candidate), from the retriever.
        log_likelihoods: (query, candidate, token), \(\log p(y_j \mid z, x)\).
        level: Level of the marginalisation, see above.
        candidates: Bool (query, candidate), True for existing ones; default: all. Masked entries of the other arguments
            may hold anything, NaN included, and get a gradient of 0.
        tokens: Bool (query, token), True for targets; default: all.

    Raises:
        UserError: Shapes disagree, the level is unknown, or a query has no candidate.

    >>> scores, likelihoods = torch.tensor([[1.2, 0.3, -0.5]]), torch.tensor([[[0.9, 0.4], [0.1, 0.8], [0.2, 0.3]]])
    >>> marginal_log_likelihood(scores, likelihoods.log())
    tensor([-1.3709])
    """
    parts = _parts(scores, log_likelihoods, candidates, tokens, level)
    if level == "sequence":
        return (parts.log_prior_QC + parts.likelihoods_QCJ.sum(dim=2)).logsumexp(dim=1)
    per_token_QJ = (parts.log_prior_QC[:, :, None] + parts.likelihoods_QCJ).logsumexp(dim=1)
    return torch.where(parts.tokens_QJ, per_token_QJ, 0.0).sum(dim=1)


def document_posterior(
    scores: Numbers,
    log_likelihoods: Numbers,
    level: Level = "sequence",
    candidates: Numbers | None = None,
    tokens: Numbers | None = None,
) -> Float[Tensor, "query candidate"]:
    r"""\(p(z \mid x, y)\) of each candidate; at the token level the mean over tokens of \(p(z \mid x, y_j)\).

    Arguments and errors are those of `marginal_log_likelihood`. Masked candidates get 0.
    """
    parts = _parts(scores, log_likelihoods, candidates, tokens, level)
    if level == "sequence":
        return (parts.log_prior_QC + parts.likelihoods_QCJ.sum(dim=2)).softmax(dim=1)
    per_token_QCJ = (parts.log_prior_QC[:, :, None] + parts.likelihoods_QCJ).softmax(dim=1)
    counted = parts.tokens_QJ[:, None]
    return torch.where(counted, per_token_QCJ, 0.0).sum(dim=2) / counted.sum(dim=2)


def retrieval_utility(
    scores: Numbers,
    log_likelihoods: Numbers,
    per: Literal["passage", "marginal"] = "passage",
    null: int = -1,
    tokens: Numbers | None = None,
) -> Float[Tensor, "query *candidate"]:
    r"""The gain in log-likelihood of the answer from a passage over reading none, in nats.

    \(\log p(y \mid z, x) - \log p(y \mid \varnothing, x)\) of each passage (REALM's appendix D), or with
    `per="marginal"` \(\log p(y \mid x) - \log p(y \mid \varnothing, x)\), which REALM's code logs under that name,
    except that it takes the mean over tokens.

    Args:
        scores: (query, candidate); used by the marginal only.
        log_likelihoods: (query, candidate, token).
        per: Determines the result's shape: (query, candidate) or (query,).
        null: Index of the null passage.
        tokens: Bool (query, token), True where a token is a target.

    Raises:
        UserError: As in `marginal_log_likelihood`; `per` is unknown; there is no such candidate.
    """
    if per not in ("passage", "marginal"):
        raise UserError(f'per must be "passage" or "marginal". Got {per!r}.')
    parts = _parts(scores, log_likelihoods, None, tokens, "sequence")
    sums_QC = parts.likelihoods_QCJ.sum(dim=2)
    if not -sums_QC.shape[1] <= null < sums_QC.shape[1]:
        raise UserError(f"null must be one of {sums_QC.shape[1]} candidates. Got {null}.")
    if per == "passage":
        return sums_QC - sums_QC[:, [null]]
    return (parts.log_prior_QC + sums_QC).logsumexp(dim=1) - sums_QC[:, null]


class _Parts(NamedTuple):
    log_prior_QC: Tensor  # −inf at masked candidates
    likelihoods_QCJ: Tensor  # 0 at masked candidates and tokens
    tokens_QJ: Tensor  # bool


def _parts(scores: Any, log_likelihoods: Any, candidates: Any, tokens: Any, level: str) -> _Parts:
    if level not in ("sequence", "token"):
        raise UserError(f'level must be "sequence" or "token". Got {level!r}.')
    scores_QC, likelihoods_QCJ = torch.as_tensor(scores), torch.as_tensor(log_likelihoods)
    if likelihoods_QCJ.ndim != 3 or scores_QC.shape != likelihoods_QCJ.shape[:2]:
        raise UserError(
            "log_likelihoods must be (query, candidate, token), and scores (query, candidate) of the same. Got "
            f"{tuple(likelihoods_QCJ.shape)} and {tuple(scores_QC.shape)}."
        )
    num_queries, num_candidates, num_tokens = likelihoods_QCJ.shape
    there_QC = _mask(candidates, (num_queries, num_candidates), "candidates", scores_QC)
    tokens_QJ = _mask(tokens, (num_queries, num_tokens), "tokens", scores_QC)
    if not there_QC.any(dim=1).all():
        raise UserError(
            "Every query needs a candidate. Got a query whose candidates are all masked.\n"
            "Always include the null passage."
        )
    # `where` instead of a product: masked entries may be NaN, and their gradient must be 0.
    log_prior_QC = torch.where(there_QC, scores_QC, _NOTHING).log_softmax(dim=1)
    counted_QCJ = there_QC[:, :, None] & tokens_QJ[:, None]
    return _Parts(log_prior_QC, torch.where(counted_QCJ, likelihoods_QCJ, 0.0), tokens_QJ)


def _mask(given: Any, shape: tuple[int, int], name: str, like: Tensor) -> Bool[Tensor, "query _"]:
    if given is None:
        return torch.ones(shape, dtype=torch.bool, device=like.device)
    mask = torch.as_tensor(given, device=like.device)
    if mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise UserError(f"{name} must be bool of shape {shape}. Got {mask.dtype} of {tuple(mask.shape)}.")
    return mask
