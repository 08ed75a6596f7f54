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
    """The keywords of a forward pass: token ids, the mask of padding, and segments where the model has two kinds."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, **without_cache(module)}
    if batch.attention_mask is not None:
        inputs["attention_mask"] = batch.attention_mask
    # GPT-2 would take segments for words; RoBERTa has one kind.
    if SEGMENTS in batch.tensors and has_segments(module):
        inputs[SEGMENTS] = batch[SEGMENTS]
    return inputs


def has_segments(module: PreTrainedModel) -> bool:
    """Whether the model has an embedding for the second text of a pair."""
    return (getattr(module.config, "type_vocab_size", None) or 0) > 1


def task_logits(module: PreTrainedModel, batch: Batch) -> Tensor:
    """What the head says of each example, float32 also under autocast: (batch, ...)."""
    return module(**task_inputs(module, batch)).logits.float()


def answered(
    task: AbstractTask, module: PreTrainedModel, rows: ExampleRows, vocabulary: Vocabulary, batch_tokens: int
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Rows of a part with their batch on the model's device, of similar length together; the module evaluates
    meanwhile, without gradients, and keeps its mode afterwards.

    Args:
        task: Makes the batches.
        module: The model.
        rows: All examples of the part.
        vocabulary: Of the tokens.
        batch_tokens: Padded tokens of a batch at most.
    """
    data = TrainingData(source=rows, vocabulary=vocabulary)
    device = next(module.parameters()).device
    lengths = np.asarray(rows.lengths)
    with evaluating(module):
        for piece in micro_batches(np.arange(len(lengths)), lengths, None, batch_tokens):
            yield piece, data.batch(task, piece, ("task",), 0).to(device)
