"""The states of a map's points in every layer, for a masked LM with some of the points hidden as in training."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.flow import PaddedBatch, Reader, check_finite, forward
from infoflow.foundation import stream
from infoflow.models import Model, tap
from infoflow.objectives import Example, MaskedLM, Vocabulary

from ._map_points import MapPoints


class MapStates(NamedTuple):
    points: MapPoints
    states: list[Float[np.ndarray, "point width"]]
    """One matrix per layer 0..L."""
    masked: Bool[np.ndarray, " point"]


def hides_tokens(model: Model) -> bool:
    """Whether the model was trained to restore tokens hidden behind a mask."""
    return model.task == "masked-lm" and model.require_tokenizer().mask_token_id is not None


def map_states(reader: Reader, points: MapPoints, tokens_per_batch: int, hide: bool) -> MapStates:
    """Run the sentences of the points once; points that the noise replaced by another token are left out."""
    order, parts, inputs = [], [], []
    with tap(reader.model, hidden=True) as tapped, torch.inference_mode():
        batches = length_batches(points.length.astype(np.int32), tokens_per_batch)
        for chosen in reader.even(points.row, batches):
            batch = _source_batch(reader, points.row[chosen], hide)
            at = (torch.arange(len(chosen)), torch.from_numpy(points.position[chosen]))
            inputs.append(batch.streams[reader.source_stack].input_ids[at].numpy())
            batch = batch.to(reader.model.device)
            forward(reader.model, batch)
            check_finite(reader.model, tapped.hidden, batch)
            states = tapped.hidden[reader.source_stack]
            parts.append(np.stack([layer[at].float().cpu().numpy() for layer in states]))
            order.append(chosen)
    back = np.argsort(np.concatenate(order))
    inputs, layers = np.concatenate(inputs)[back], np.concatenate(parts, axis=1)[:, back]
    masked = (inputs == reader.model.require_tokenizer().mask_token_id) & (inputs != points.token)
    kept = np.flatnonzero(masked | (inputs == points.token))
    return MapStates(points.take(kept), list(layers[:, kept]), masked[kept])


def _source_batch(reader: Reader, rows: np.ndarray, hide: bool) -> PaddedBatch:
    """The stack that reads the text, alone."""
    batch = reader.padded(rows)
    source = batch.streams[reader.source_stack]
    if hide:
        source = replace(source, input_ids=_hidden(reader, source.input_ids, source.real, batch.sentence_ids))
    return replace(batch, streams={reader.source_stack: source})


def _hidden(
    reader: Reader, ids: Int[Tensor, "sentence token"], real: Bool[Tensor, "sentence token"], sentences: np.ndarray
) -> Int[Tensor, "sentence token"]:
    """Inputs corrupted as in training; the noise depends on the seed and the sentence alone."""
    vocabulary = Vocabulary.from_tokenizer(reader.model.require_tokenizer())
    noisy = ids.clone()
    for row, sentence in enumerate(sentences.tolist()):
        length = int(real[row].sum())
        generator = stream("token-map", reader.seed, sentence)
        corrupted = MaskedLM().corrupt(Example(texts=(ids[row, :length].numpy(),)), generator, vocabulary)
        noisy[row, :length] = torch.from_numpy(corrupted.input_ids)
    return noisy
