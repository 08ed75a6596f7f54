"""What a reader answers: log-probabilities over the objects that a relation may have."""

import numpy as np
import torch
from transformers import PreTrainedModel

from ._inputs import FactInputs

_BATCH = 128


@torch.no_grad()
def answer_log_probabilities(reader: PreTrainedModel, inputs: FactInputs, batch: int = _BATCH) -> np.ndarray:
    r"""Each object's log-probability, renormalised over the objects of the relation, (row, choice).

    $$ \log p(o) = \sum_j \log p(o_j \mid x) - \log \sum_{o'} \exp \sum_j \log p(o'_j \mid x) $$

    j runs over the masks, all of them hidden at once. Choices that a relation does not have get −∞. In nats.

    Args:
        reader: A masked LM, in evaluation mode.
        inputs: Questions with their documents.
        batch: Rows of a forward pass.
    """
    found = []
    for start in range(0, len(inputs), batch):
        part = inputs.take(np.arange(start, min(start + batch, len(inputs))))
        logits = reader(**part.tensors(reader.device)).logits
        found.append(choice_log_probabilities(logits, part))
    return np.concatenate(found)


def choice_log_probabilities(logits: torch.Tensor, inputs: FactInputs) -> np.ndarray:
    """The same from logits (row, token, vocabulary) that are there already."""
    masks = torch.from_numpy(inputs.masks).to(logits.device)
    rows = torch.arange(len(inputs), device=logits.device)[:, None]
    at_masks = logits[rows, masks.clamp(min=0)].double().log_softmax(dim=-1)  # (row, target, vocabulary)
    candidates = torch.from_numpy(inputs.candidates).to(logits.device)  # (row, choice, target)
    spelt = at_masks.gather(2, candidates.clamp(min=0).transpose(1, 2)).transpose(1, 2)  # (row, choice, target)
    sums = torch.where(candidates >= 0, spelt, 0.0).sum(dim=-1)
    sums = torch.where((candidates >= 0).any(dim=-1), sums, -torch.inf)
    return sums.log_softmax(dim=-1).cpu().numpy()
