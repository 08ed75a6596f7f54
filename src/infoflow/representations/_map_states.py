"""The states of a map's points in every layer; for a masked LM some points are hidden as in training."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float

from infoflow.corpus import length_batches
from infoflow.flow import PaddedBatch, Reader, check_finite, forward
from infoflow.models import Model, tap

from ._map_points import MapPoints


class MapStates(NamedTuple):
    points: MapPoints
    states: list[Float[np.ndarray, "point width"]]
    """One matrix per layer 0..L."""
    masked: Bool[np.ndarray, " point"]


def hides_tokens(model: Model) -> bool:
    """Whether the model was trained to predict masked tokens."""
    return model.task == "masked-lm" and model.require_tokenizer().mask_token_id is not None


def map_states(reader: Reader, points: MapPoints, tokens_per_batch: int, hide: bool) -> MapStates:
    """Run the sentences of the points once; points replaced by another token through noise are left out."""
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
    if hide:
        return reader.corrupted_batch(batch, "token-map", reader.seed)
    return replace(batch, streams={reader.source_stack: batch.streams[reader.source_stack]})
