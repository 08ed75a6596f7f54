"""A reader's answers: log-probabilities over the possible objects of a relation."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import EncoderDecoderModel, PreTrainedModel

from ._inputs import FactInputs

BATCH = 128
_SEQUENCES = 4096  # answers per decoder pass


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


@torch.no_grad()
def written_token_log_probabilities(reader: EncoderDecoderModel, inputs: FactInputs) -> np.ndarray:
    r"""\(\log p(o_j \mid x, o_{<j})\) of each token of each object and of its end, (row, choice, target).

    0 where the object has no such token, −∞ for choices outside the relation. A question is encoded once, and the
    decoder's first step, which its objects share, runs once.

    Args:
        reader: In evaluation mode; its encoder has segments.
        inputs: Questions with their documents.
    """
    num_choices = inputs.candidates.shape[1]
    batch = max(1, _SEQUENCES // num_choices)
    starts = range(0, len(inputs), batch)
    parts = [inputs.take(np.arange(start, min(start + batch, len(inputs)))) for start in starts]
    return np.concatenate([_of_rows(reader, part) for part in parts])


def _of_rows(reader: Any, part: FactInputs) -> np.ndarray:
    longest = int(part.attention_mask.sum(axis=1).max())
    named = {name: tensor[:, :longest] for name, tensor in part.tensors(reader.device).items()}
    spelt, asked = _spelt(part, int(reader.config.eos_token_id))
    _, num_choices, num_targets = spelt.shape
    logits = _logits(reader, named, torch.from_numpy(spelt).to(reader.device).flatten(0, 1), num_choices)
    logs = logits.double().log_softmax(dim=-1).cpu()
    of_tokens = logs.gather(2, torch.from_numpy(spelt).reshape(-1, num_targets, 1))[:, :, 0]
    there = asked.any(axis=2, keepdims=True)
    return np.where(asked, of_tokens.numpy().reshape(spelt.shape), np.where(there, 0.0, -np.inf))


def _logits(reader: Any, named: dict[str, Tensor], answers: Tensor, num_choices: int) -> Tensor:
    """Logits before each token of the answers, (row and choice, target, word)."""
    mask = named["attention_mask"]
    states = reader.encoder(**named).last_hidden_state
    start = mask.new_full((len(mask), 1), int(reader.config.decoder_start_token_id))
    first = reader.decoder(input_ids=start, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=True)
    known = first.past_key_values
    known.batch_repeat_interleave(num_choices)
    later = reader.decoder(
        input_ids=answers[:, :-1],
        encoder_hidden_states=states.repeat_interleave(num_choices, dim=0),
        encoder_attention_mask=mask.repeat_interleave(num_choices, dim=0),
        past_key_values=known,
        use_cache=True,
    ).logits
    return torch.cat([first.logits.repeat_interleave(num_choices, dim=0), later], dim=1)


def _spelt(part: FactInputs, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Every object and its end, int64 (row, choice, target), 0 for missing tokens; and the mask of existing ones."""
    words = part.candidates >= 0
    num = words.sum(axis=2, keepdims=True)
    places = np.arange(words.shape[2] + 1)
    spelt = np.concatenate([np.where(words, part.candidates, 0), np.zeros_like(num)], axis=2)
    return np.where((places == num) & (num > 0), end, spelt), (places <= num) & (num > 0)
