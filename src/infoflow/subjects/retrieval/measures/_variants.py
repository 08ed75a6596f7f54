"""Answers of a model under several edits of its forward pass; the blocks below an edit run once."""

# V variant, B row

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from infoflow.heads import by_first_block
from infoflow.models import FastLinear, Model, recorded_blocks, skipped_blocks

from ._answers import choice_log_probabilities
from ._asked import logits_of
from ._inputs import FactInputs

Edits = Callable[[Sequence[int]], AbstractContextManager[Any]]
"""A context that applies these variants' edits, one to each repetition of the batch; without variants, no edit."""
_TOKENS = 16_384  # total of all variants that run together


def variant_answers(
    model: Model,
    inputs: FactInputs,
    changed: Sequence[Collection[tuple[str, int]]],
    edits: Edits,
    *,
    keep_heads: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probability of each choice, in nats: unedited, (row, choice), and of each variant, (variant, row,
    choice).

    Args:
        model: A loaded model of one stack.
        inputs: One batch.
        changed: The blocks that each variant changes; if empty, its answers are the model's own.
        edits: See `Edits`.
        keep_heads: Whether the edits begin at an attention's output projection or above.
    """
    together = max(1, _TOKENS // inputs.input_ids.size)
    with torch.no_grad(), FastLinear():
        with recorded_blocks(model) as recorded, edits(()):
            clean_BC = choice_log_probabilities(logits_of(model, inputs), inputs)
        found_VBC = np.repeat(clean_BC[None], len(changed), axis=0)
        for (stack, layer), members in by_first_block(model, changed).items():
            for start in range(0, len(members), together):
                some = members[start : start + together]
                skipped = skipped_blocks(model, recorded, stack, layer, len(some), keep_heads=keep_heads)
                with skipped, edits(some):
                    logits = logits_of(model, inputs, len(some))
                repeated = inputs.take(np.tile(np.arange(len(inputs)), len(some)))
                found_VBC[some] = choice_log_probabilities(logits, repeated).reshape(len(some), *clean_BC.shape)
    return clean_BC, found_VBC


def scores_of(logs: np.ndarray, inputs: FactInputs) -> dict[str, np.ndarray]:
    """Metrics (..., row) of log-probabilities (..., row, choice).

    p1: whether the right object is the first; nats: its surprise −log p; probability.
    """
    right = np.take_along_axis(logs, np.broadcast_to(inputs.answers[:, None], (*logs.shape[:-1], 1)), axis=-1)[..., 0]
    first = (logs.argmax(axis=-1) == inputs.answers).astype(np.float64)
    return {"p1": first, "nats": -right, "probability": np.exp(right)}
