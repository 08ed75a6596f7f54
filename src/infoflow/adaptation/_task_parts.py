"""The parts of a task as a model reads them."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.corpus import Corpus, Vocabulary
from infoflow.models import Model
from infoflow.training import ExampleRows, TrainingData

from ._forward import has_segments
from ._task import AbstractTask
from ._task_model import padding_id
from ._task_rows import SEGMENTS


def task_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """A copy of the model's tokenizer that can pad: where it has no token for it, with that of `padding_id`."""
    tokenizer: Any = copy.deepcopy(model.require_tokenizer())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding_id(model))
    return tokenizer


def task_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """What batches need to know of a tokenizer; one without tokens around a sentence has the end of text there."""
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
class TaskParts:
    """A task's parts, and the rows of each, made when they are asked for."""

    task: AbstractTask
    train: Corpus
    dev: Corpus
    test: Corpus
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None
    max_length: int
    _rows: dict[str, ExampleRows] = field(default_factory=dict, repr=False)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return task_vocabulary(self.tokenizer)

    @cached_property
    def training(self) -> TrainingData:
        """What the model is trained on."""
        return TrainingData(
            source=self.rows("train"),
            vocabulary=self.vocabulary,
            tokenizer=self.tokenizer,
            target_tokenizer=self.target_tokenizer,
        )

    def rows(self, part: str) -> ExampleRows:
        """The examples of a part as token ids."""
        if part not in self._rows:
            two = {"target_tokenizer": self.target_tokenizer} if self.task.shape == "generation" else {}
            self._rows[part] = self.task.rows(getattr(self, part), self.tokenizer, self.max_length, **two)
        return self._rows[part]

    def tokenizer_for(self, module: PreTrainedModel) -> PreTrainedTokenizerBase:
        """The tokenizer to save beside a tuned model: without being asked it gives the inputs that were trained on.

        Of pairs and passages these are segments too, where the model has two kinds; many tokenizers keep them back.
        """
        rows = self.rows("train")
        if not has_segments(module) or all(SEGMENTS not in rows.example(i).labels for i in range(len(rows.lengths))):
            return self.tokenizer
        tokenizer: Any = copy.deepcopy(self.tokenizer)
        names = list(dict.fromkeys(("input_ids", SEGMENTS, *tokenizer.model_input_names)))
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names  # the latter is saved
        return tokenizer
