"""A reader's answers: log-probabilities over the possible objects of a relation."""

import numpy as np
import torch
from torch import Tensor
from transformers import EncoderDecoderModel, PreTrainedModel

from ._inputs import FactInputs
from ._written_answers import written_token_log_probabilities

BATCH = 128


def answer_log_probabilities(reader: PreTrainedModel, inputs: FactInputs, batch: int = BATCH) -> np.ndarray:
    r"""Each object's log-probability, renormalised over the objects of the relation, (row, choice).

    $$ \log p(o) = \sum_j \log p(o_j \mid x) - \log \sum_{o'} \exp \sum_j \log p(o'_j \mid x) $$

    j runs over the masks, all masked at once; for an encoder-decoder, over the generated tokens, each conditioned on
    those before, and the end. Choices outside the relation get −∞. In nats.

    Args:
        reader: A BERT with the head of a masked LM, or an `EncoderDecoderModel`, in evaluation mode.
        inputs: Questions with their documents.
        batch: Rows per forward pass.
    """
    return renormalised(choice_token_log_probabilities(reader, inputs, batch))


@torch.no_grad()
def choice_token_log_probabilities(reader: PreTrainedModel, inputs: FactInputs, batch: int = BATCH) -> np.ndarray:
    r"""\(\log p(o_j \mid x)\) of each token of each object, over the whole vocabulary, (row, choice, target).

    0 where the object has no such token, −∞ for choices outside the relation. Arguments as above; an encoder-decoder
    has one more target, the end.
    """
    if isinstance(reader, EncoderDecoderModel):
        return written_token_log_probabilities(reader, inputs)
    found = []
    for start in range(0, len(inputs), batch):
        part = inputs.take(np.arange(start, min(start + batch, len(inputs))))
        longest = int(part.attention_mask.sum(axis=1).max())
        named = {name: tensor[:, :longest] for name, tensor in part.tensors(reader.device).items()}
        states = reader.base_model(**named).last_hidden_state
        rows = torch.arange(len(part), device=states.device)[:, None]
        masks = torch.from_numpy(part.masks).to(states.device)
        found.append(_of_choices(reader.get_submodule("cls")(states[rows, masks.clamp(min=0)]), part))
    return np.concatenate(found)


def choice_log_probabilities(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """`answer_log_probabilities` from existing logits (row, token, vocabulary)."""
    masks = torch.from_numpy(inputs.masks).to(logits.device)
    rows = torch.arange(len(inputs), device=logits.device)[:, None]
    return renormalised(_of_choices(logits[rows, masks.clamp(min=0)], inputs))


def choice_log_probabilities_at_masks(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """The same from logits (row, target, vocabulary) at the masks only; undefined at positions −1."""
    return renormalised(_of_choices(logits, inputs))


def renormalised(token_logs: np.ndarray) -> np.ndarray:
    """Log-probabilities over choices (row, choice) from those of their tokens (row, choice, target)."""
    return torch.from_numpy(token_logs).sum(dim=-1).log_softmax(dim=-1).numpy()


def _of_choices(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """From logits at masks (row, target, vocabulary) to (row, choice, target)."""
    at_masks = logits.double().log_softmax(dim=-1)
    candidates = torch.from_numpy(inputs.candidates).to(logits.device)  # (row, choice, target)
    spelt = at_masks.gather(2, candidates.clamp(min=0).transpose(1, 2)).transpose(1, 2)
    there = (candidates >= 0).any(dim=-1, keepdim=True)
    return torch.where(candidates >= 0, spelt, torch.where(there, 0.0, -torch.inf)).cpu().numpy()
