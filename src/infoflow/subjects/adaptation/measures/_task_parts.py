"""The parts of a task as input for a model."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.corpus import Corpus, Vocabulary
from infoflow.models import Model
from infoflow.training import ExampleRows, TrainingData

from ._forward import has_segments
from ._room import input_length
from ._task import AbstractTask, TaskData
from ._task_model import padding_id
from ._task_rows import SEGMENTS
from ._training_part import training_part
from ._tune_config import TuneConfig


def task_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """A copy of the model's tokenizer that can pad; it uses `padding_id` if it has no padding token."""
    tokenizer: Any = copy.deepcopy(model.require_tokenizer())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding_id(model))
    return tokenizer


def task_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """The tokenizer's special tokens for batches; without tokens around a sentence, the end of text is used."""
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


def task_rows(
    task: AbstractTask,
    corpus: Corpus,
    max_length: int,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
) -> ExampleRows:
    """The examples of a part as token ids; targets use the tokenizer of the target side."""
    two = {"target_tokenizer": target_tokenizer} if task.shape == "generation" else {}
    return task.rows(corpus, tokenizer, max_length, **two)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskParts:
    """A task's parts and their rows, which are created on demand."""

    task: AbstractTask
    train: Corpus
    dev: Corpus
    test: Corpus
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None
    max_length: int
    _rows: dict[str, ExampleRows] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Model, data: TaskData, task: AbstractTask, config: TuneConfig) -> "TaskParts":
        """The parts as `tune` uses them; `task` is fitted to the model."""
        return cls(
            task=task,
            train=training_part(data, config.examples, config.control),
            dev=data.dev,
            test=data.test,
            tokenizer=task_tokenizer(model),
            target_tokenizer=model.target_tokenizer,
            max_length=input_length(model, config.max_length, task),
        )

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return task_vocabulary(self.tokenizer)

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
            corpus = getattr(self, part)
            self._rows[part] = task_rows(self.task, corpus, self.max_length, self.tokenizer, self.target_tokenizer)
        return self._rows[part]

    def tokenizer_for(self, module: PreTrainedModel) -> PreTrainedTokenizerBase:
        """The tokenizer to save with a tuned model: by default it produces the inputs used in training.

        For pairs and passages that includes segments, if the model has two kinds; many tokenizers omit them.
        """
        rows = self.rows("train")
        if not has_segments(module) or all(SEGMENTS not in rows.example(i).labels for i in range(len(rows.lengths))):
            return self.tokenizer
        tokenizer: Any = copy.deepcopy(self.tokenizer)
        names = list(dict.fromkeys(("input_ids", SEGMENTS, *tokenizer.model_input_names)))
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names  # the latter is saved
        return tokenizer
