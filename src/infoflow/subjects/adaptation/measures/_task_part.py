"""The examples of one part of a task, in batches for the bodies of its models."""

# B row of a batch (an example, a window, or one of the answers to choose among), T token

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import block_of, hash64_array
from infoflow.models import Model, shift_right
from infoflow.objectives import Batch
from infoflow.training import ExampleRows, TrainingData, micro_batches

from ._choice import CHOICES
from ._room import input_length
from ._task import AbstractTask
from ._task_parts import task_rows, task_tokenizer, task_vocabulary

_READ = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskBatch:
    """Some examples, and the input of the stacks for them."""

    batch: Batch
    index: Int[np.ndarray, " example"]
    """Rows of the part."""
    inputs: dict[str, Tensor]
    """Keyword arguments of a body, (B, T) each; each answer choice is a separate row."""
    text: dict[str, Bool[Tensor, "row token"]]
    """By stack: False at padding and special tokens."""
    real: dict[str, Bool[Tensor, "row token"]]
    """By stack: False at padding."""

    @property
    def rows_each(self) -> int:
        """Rows per example: 1, or the number of answer choices."""
        return len(self.inputs["input_ids"]) // len(self.batch)

    def tokens(self, stack: str) -> Int[Tensor, "row token"]:
        """Input of the stack."""
        apart = stack == "decoder" and "decoder_input_ids" in self.inputs
        return self.inputs["decoder_input_ids" if apart else "input_ids"]

    def repeated(self, variants: int) -> Batch:
        """The batch `variants` times over."""
        tensors = {name: one.repeat(variants, *[1] * (one.dim() - 1)) for name, one in self.batch.tensors.items()}
        return replace(self.batch, tensors=tensors)


class TaskPart:
    """The examples of a part as input for `model` and its tuned relatives, which share one tokenizer.

    Args:
        task: The task.
        corpus: The part.
        model: Determines the tokenization and the length limit.
        options: Seed, maximum length, padded tokens per batch.
        most: Maximum number of examples, by hash.

    Raises:
        UserError: The task lacks a label, or `AbstractTask.rows` refuses the corpus.
    """

    def __init__(
        self, task: AbstractTask, corpus: Corpus, model: Model, options: PassOptions, most: int | None = None
    ) -> None:
        self.task, self.options, self.model = task, options, model
        self.corpus = corpus if most is None else _first_by_hash(corpus, most, options.seed)
        tokenizer = task_tokenizer(model)
        longest = input_length(model, options.max_length, task)
        self.vocabulary = task_vocabulary(tokenizer)
        self.rows: ExampleRows = task_rows(task, self.corpus, longest, tokenizer, model.target_tokenizer)
        self.data = TrainingData(source=self.rows, vocabulary=self.vocabulary)

    def __len__(self) -> int:
        return len(self.rows.lengths)

    @cached_property
    def sentence_ids(self) -> Int[np.ndarray, " row"]:
        """Ids that determine each row's bootstrap block: the text of its example (a row may be a window of it)."""
        windows = getattr(self.rows, "examples", None)
        return self.corpus.content_ids if windows is None else self.corpus.content_ids[windows]

    @cached_property
    def blocks(self) -> Int[np.ndarray, " row"]:
        """Bootstrap block of each row."""
        return block_of(self.sentence_ids)

    @cached_property
    def batches(self) -> list[TaskBatch]:
        """All rows, in batches by length."""
        return list(self.batches_within(self.options.tokens_per_batch))

    def batches_within(self, tokens: int) -> Iterator[TaskBatch]:
        """All rows, in batches of at most this many padded tokens."""
        lengths, objective = np.asarray(self.rows.lengths), self.task.for_evaluation()
        for index in micro_batches(np.arange(len(self)), lengths, None, tokens):
            batch = self.data.batch(objective, index, ("evaluation-noise", self.options.seed), 0)
            yield self._read(batch.to(self.model.device), index)

    def _read(self, batch: Batch, index: np.ndarray) -> TaskBatch:
        inputs = {name: batch.tensors[name] for name in _READ if name in batch.tensors}
        if batch.input_ids.dim() == 3:
            inputs = {name: one.flatten(0, 1) for name, one in inputs.items()}
        if self.task.shape == "generation" and len(self.model.anatomy.stacks) > 1:
            inputs["decoder_input_ids"] = shift_right(self.model, batch.labels)
        ids, mask = inputs["input_ids"], inputs.get("attention_mask")
        # A mask between tokens (as in a prefix LM) does not show which are padding.
        real = mask.bool() if mask is not None and mask.dim() == 2 else ids != self.vocabulary.pad
        if mask is None:
            inputs["attention_mask"], real = torch.ones_like(ids), torch.ones_like(ids, dtype=torch.bool)
        if CHOICES in batch.tensors:  # filler choices have a first token, or attention would be NaN
            real = real & batch[CHOICES].flatten()[:, None]
        reads = self.model.anatomy.reads.name
        seen = {reads: real}
        if "decoder_input_ids" in inputs:
            seen["decoder"] = inputs["decoder_input_ids"] != self.vocabulary.pad
        special = torch.tensor(self.vocabulary.special, device=ids.device)
        text = {
            stack: seen_BT & ~torch.isin(inputs["decoder_input_ids"] if stack != reads else ids, special)
            for stack, seen_BT in seen.items()
        }
        return TaskBatch(batch=batch, index=index, inputs=inputs, text=text, real=seen)


def _first_by_hash(corpus: Corpus, most: int, seed: int) -> Corpus:
    if most >= len(corpus):
        return corpus
    order = np.argsort(hash64_array(("inside-view", seed), corpus.content_ids), kind="stable")
    return corpus.select(np.sort(order[:most]))
