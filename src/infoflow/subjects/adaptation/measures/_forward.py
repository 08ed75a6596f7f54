"""Runs a model with a task's head over batches of examples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.models import evaluating, without_cache
from infoflow.objectives import Batch
from infoflow.training import ExampleRows, TrainingData, micro_batches

from ._task import AbstractTask
from ._task_rows import SEGMENTS


def task_inputs(module: PreTrainedModel, batch: Batch) -> dict[str, Any]:
    """Arguments of a forward pass: token ids, padding mask, and segments if the model has two kinds."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, **without_cache(module)}
    if batch.attention_mask is not None:
        inputs["attention_mask"] = batch.attention_mask
    # GPT-2 would read segments as words; RoBERTa has one kind.
    if SEGMENTS in batch.tensors and has_segments(module):
        inputs[SEGMENTS] = batch[SEGMENTS]
    return inputs


def has_segments(module: PreTrainedModel) -> bool:
    """Whether the model has a segment embedding for the second text of a pair."""
    return (getattr(module.config, "type_vocab_size", None) or 0) > 1


def task_logits(module: PreTrainedModel, batch: Batch) -> Tensor:
    """The head's output for each example, float32 also under autocast: (batch, ...)."""
    return module(**task_inputs(module, batch)).logits.float()


def answered(
    task: AbstractTask, module: PreTrainedModel, rows: ExampleRows, vocabulary: Vocabulary, batch_tokens: int
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Yields rows of a part with their batch on the model's device, grouped by length.

    The module is in evaluation mode without gradients meanwhile, and gets its mode back afterwards.

    Args:
        task: Builds the batches.
        module: The model.
        rows: All examples of the part.
        vocabulary: Vocabulary of the tokens.
        batch_tokens: Maximum number of padded tokens per batch.
    """
    data = TrainingData(source=rows, vocabulary=vocabulary)
    device = next(module.parameters()).device
    lengths = np.asarray(rows.lengths)
    with evaluating(module):
        for piece in micro_batches(np.arange(len(lengths)), lengths, None, batch_tokens):
            yield piece, data.batch(task, piece, ("task",), 0).to(device)
