"""Answers of an encoder-decoder: the likelihood of each object of a relation, its end included."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import EncoderDecoderModel

from ._inputs import FactInputs

_SEQUENCES = 4096  # answers per decoder pass


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
