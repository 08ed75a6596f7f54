"""The parts of a task as input for a model, fitted to its lengths, in batches."""

# B row of a batch (an example, a window, or one of the answers to choose among), T token

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import Corpus, Vocabulary
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, block_of, current_display, hash64_array
from infoflow.models import Model, shift_right
from infoflow.objectives import Batch
from infoflow.training import ExampleRows, TrainingData, micro_batches

from ._choice_and_tagging import CHOICES
from ._generation import Generation
from ._generation_rows import text_format
from ._labelled_examples import training_part
from ._methods import TuneConfig
from ._task import AbstractTask, TaskData
from ._task_model import padding_id
from ._task_rows import SEGMENTS, has_segments


def fitted(task: AbstractTask, model: Model, config: TuneConfig) -> AbstractTask:
    """The task with a target length of `config.max_target`, within the model's positions.

    A target token that the model always reads first has no loss. A single decoder reads source and target in one row,
    so the target gets the positions that `config.max_length` leaves, or half of the positions if that is more.
    """
    if not isinstance(task, Generation):
        if config.max_target:
            raise UserError(
                f"tune.max_target only applies to generation. Got {config.max_target} for {task.task}, "
                f"a task of the shape {task.shape}. Leave it out."
            )
        return task
    begin = text_format(model.target_tokenizer or model.require_tokenizer(), model.target_tokenizer is None).start
    read = begin is not None and (
        model.task != "seq2seq" or begin == getattr(model.module.config, "decoder_start_token_id", None)
    )
    wanted, limit = config.max_target or task.max_target, model.max_target_tokens
    if limit is None:
        room = wanted
    elif model.task == "seq2seq":
        room = limit - (begin is not None and not read)
    else:
        room = max(limit // 2, limit + 1 - config.max_length)
    return replace(task, max_target=max(min(wanted, room), 1), begin_is_read=read)


def tell_of_room(task: AbstractTask, other: AbstractTask, model: Model, config: TuneConfig) -> None:
    """Report that targets are truncated below the requested length, if they are."""
    if not isinstance(task, Generation) or not isinstance(other, Generation):
        return
    if task.max_target < (config.max_target or other.max_target):
        current_display().note(
            f"{task.task}: target texts have at most {task.max_target} tokens, since {model.name} has "
            f"{model.max_target_tokens} positions."
        )


def input_length(model: Model, max_length: int, task: AbstractTask) -> int:
    """Maximum number of input tokens: the requested length, within the model's positions.

    A single decoder reads the target after the input, so the input gets the positions that the target leaves.
    """
    limit = model.max_tokens
    if limit is not None and isinstance(task, Generation) and model.task == "causal-lm":
        limit = max(limit + 1 - task.max_target, limit // 2)
    return max_length if limit is None else min(max_length, limit)


def task_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """A copy of the model's tokenizer that can pad; it uses `padding_id` if it has no padding token."""
    tokenizer: Any = copy.deepcopy(model.require_tokenizer())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding_id(model))
    return tokenizer


def task_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """The tokenizer's special tokens for batches; if it puts no tokens around a sentence, the end of text is used."""
    known: Any = tokenizer
    ends = [known.sep_token_id, known.eos_token_id, known.pad_token_id]
    starts = [known.cls_token_id, known.bos_token_id, *ends]
    return Vocabulary(
        size=len(known),
        pad=known.pad_token_id,
        start=next(token for token in starts if token is not None),
        end=next(token for token in ends if token is not None),
        mask=known.mask_token_id,
        special=tuple(sorted({*known.all_special_ids})),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskReader:
    """How a model reads the examples of a task."""

    task: AbstractTask
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None  # for targets, if they have their own
    max_length: int

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return task_vocabulary(self.tokenizer)

    def read(self, corpus: Corpus) -> ExampleRows:
        """The examples of a part as token ids."""
        two = {"target_tokenizer": self.target_tokenizer} if self.task.shape == "generation" else {}
        return self.task.rows(corpus, self.tokenizer, self.max_length, **two)


def task_reader(model: Model, task: AbstractTask, max_length: int) -> TaskReader:
    """How the model reads inputs of at most `max_length` tokens."""
    tokenizer = task_tokenizer(model)
    return TaskReader(task=task, tokenizer=tokenizer, target_tokenizer=model.target_tokenizer, max_length=max_length)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskParts(TaskReader):
    """A task's parts and their rows, which are created on demand."""

    train: Corpus
    dev: Corpus
    test: Corpus
    _rows: dict[str, ExampleRows] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Model, data: TaskData, task: AbstractTask, config: TuneConfig) -> "TaskParts":
        """The parts as `tune` uses them; `task` is fitted to the model."""
        return cls(
            task=task,
            tokenizer=task_tokenizer(model),
            target_tokenizer=model.target_tokenizer,
            max_length=input_length(model, config.max_length, task),
            train=training_part(data, config.examples, config.control),
            dev=data.dev,
            test=data.test,
        )

    @cached_property
    def training(self) -> TrainingData:
        """The model's training data."""
        return TrainingData(
            source=self.rows("train"),
            vocabulary=self.vocabulary,
            tokenizer=self.tokenizer,
            target_tokenizer=self.target_tokenizer,
        )

    def rows(self, part: str) -> ExampleRows:
        """The examples of a part as token ids."""
        if part not in self._rows:
            self._rows[part] = self.read(getattr(self, part))
        return self._rows[part]

    def tokenizer_for(self, module: PreTrainedModel) -> PreTrainedTokenizerBase:
        """The tokenizer to save with a tuned model; by default, it then produces the same inputs as in training.

        For pairs and passages, these include segments if the model has two kinds; many tokenizers omit segments.
        """
        rows = self.rows("train")
        if not has_segments(module) or all(SEGMENTS not in rows.example(i).labels for i in range(len(rows.lengths))):
            return self.tokenizer
        tokenizer: Any = copy.deepcopy(self.tokenizer)
        names = list(dict.fromkeys(("input_ids", SEGMENTS, *tokenizer.model_input_names)))
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names  # the latter is saved
        return tokenizer


# The examples of one part of a task, in batches for the bodies of its models.

_READ = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskBatch:
    """Some examples, and the input of the stacks for them."""

    batch: Batch
    index: Int[np.ndarray, " example"]  # rows of the part
    inputs: dict[str, Tensor]  # keyword arguments of a body, (B, T) each; each answer choice is a separate row
    text: dict[str, Bool[Tensor, "row token"]]  # by stack: False at padding and special tokens
    real: dict[str, Bool[Tensor, "row token"]]  # by stack: False at padding

    @property
    def rows_each(self) -> int:
        """Number of rows per example: 1, or the number of answer choices."""
        return len(self.inputs["input_ids"]) // len(self.batch)

    def tokens(self, stack: str) -> Int[Tensor, "row token"]:
        """Input of the stack."""
        apart = stack == "decoder" and "decoder_input_ids" in self.inputs
        return self.inputs["decoder_input_ids" if apart else "input_ids"]

    def repeated(self, variants: int) -> Batch:
        """The batch, repeated `variants` times."""
        tensors = {name: one.repeat(variants, *[1] * (one.dim() - 1)) for name, one in self.batch.tensors.items()}
        return replace(self.batch, tensors=tensors)


class TaskPart:
    """The examples of a part as input for `model` and models tuned from it, which share a tokenizer."""

    def __init__(
        self, task: AbstractTask, corpus: Corpus, model: Model, options: PassOptions, most: int | None = None
    ) -> None:
        self.task, self.options, self.model = task, options, model
        self.corpus = corpus
        if most is not None and most < len(corpus):
            order = np.argsort(hash64_array(("inside-view", options.seed), corpus.content_ids), kind="stable")
            self.corpus = corpus.select(np.sort(order[:most]))
        reader = task_reader(model, task, input_length(model, options.max_length, task))
        self.vocabulary, self.rows = reader.vocabulary, reader.read(self.corpus)
        self.data = TrainingData(source=self.rows, vocabulary=self.vocabulary)

    def __len__(self) -> int:
        return len(self.rows.lengths)

    @cached_property
    def sentence_ids(self) -> Int[np.ndarray, " row"]:
        """Ids that determine each row's bootstrap block, by the text of its example (a row may be a window of it)."""
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
        # A mask between tokens (as in a prefix LM) does not show which tokens are padding.
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
