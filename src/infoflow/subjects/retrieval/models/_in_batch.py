"""The loss of a retriever: a query's passage against all passages of the batch."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.objectives import Numbers


def in_batch_loss(
    scores: Numbers,
    positives: Numbers | None = None,
    ignore: Numbers | None = None,
) -> Float[Tensor, ""]:
    r"""Mean over queries of \(-\log \mathrm{softmax}(S_i)_{\mathrm{pos}(i)}\), in nats ([@karpukhin2020dense]).

    Args:
        scores: (query, passage): one passage for each query, then hard negatives.
        positives: int64 (query,), the passage of each; default: i for query i.
        ignore: Bool (query, passage): passages that answer a query but are not its own (duplicates, other passages with
            the answer). They are left out of its softmax.

    Raises:
        UserError: Shapes disagree, or a positive is out of range or ignored.
    """
    scores_QP = torch.as_tensor(scores)
    if scores_QP.ndim != 2 or 0 in scores_QP.shape:
        raise UserError(f"scores must be (query, passage), not empty. Got {tuple(scores_QP.shape)}.")
    num_queries, num_passages = scores_QP.shape
    own_Q = _positives(positives, num_queries, num_passages, scores_QP.device)
    if ignore is not None:
        ignore_QP = torch.as_tensor(ignore, device=scores_QP.device)
        if ignore_QP.dtype != torch.bool or ignore_QP.shape != scores_QP.shape:
            raise UserError(
                f"ignore must be bool of shape {tuple(scores_QP.shape)}. Got {ignore_QP.dtype} of "
                f"{tuple(ignore_QP.shape)}."
            )
        if ignore_QP.gather(1, own_Q[:, None]).any():
            raise UserError("ignore must not hold a query's own passage. Got one.\nMask only false negatives.")
        scores_QP = scores_QP.masked_fill(ignore_QP, float("-inf"))
    return F.cross_entropy(scores_QP, own_Q)


def _positives(given: Any, num_queries: int, num_passages: int, device: torch.device) -> Tensor:
    own = torch.arange(num_queries, device=device) if given is None else torch.as_tensor(given, device=device).long()
    if tuple(own.shape) != (num_queries,) or int(own.min()) < 0 or int(own.max()) >= num_passages:
        raise UserError(
            f"positives must name one of {num_passages} passages for each of {num_queries} queries. "
            f"Got {tuple(own.shape)}, the highest {int(own.max()) if own.numel() else 'none'}."
        )
    return own
