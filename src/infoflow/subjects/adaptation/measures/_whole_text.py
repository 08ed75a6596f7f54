"""Tasks with one label or number per text or pair of texts."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from infoflow.corpus import Corpus
from infoflow.objectives import SENTENCE_FIELDS, Batch, Field
from infoflow.training import ExampleRows

from ._task import AbstractTask
from ._task_rows import SEGMENTS, TaskRows, read_texts


class AbstractTextTask(AbstractTask):
    """A task on each text, or on pairs of texts if the corpus has the column `second`."""

    head: ClassVar[str] = "AutoModelForSequenceClassification"
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, SEGMENTS: Field()}

    @abstractmethod
    def targets(self, corpus: Corpus) -> np.ndarray:
        """Targets in the form that the loss takes: one row per example.

        Raises:
            UserError: A label does not occur in training, or a number is missing.
        """

    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Examples as token ids, with their targets; row i is row i of the corpus."""
        targets = self.targets(corpus)
        second = corpus.column("second") if "second" in corpus.columns else None
        tokens = read_texts(tokenizer, corpus.column("text"), second, max_length)
        return TaskRows(tokens, corpus.ids, labels=targets)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of examples."""
        return {self.name: len(batch)}
