"""What the readers of a study are trained on: a tokenizer, passages, and queries about them."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

from infoflow.corpus import Vocabulary
from infoflow.retrieval import Library
from infoflow.training import PassageRows, TrainingData


class AbstractReadingMatter(ABC):
    """A generated world of facts, or questions about real text; readers of a study share it."""

    positions: int  # tokens of an input at most

    @property
    @abstractmethod
    def tokenizer(self) -> Any:
        """Of reader and retriever."""

    @abstractmethod
    def passage_library(self) -> Library:
        """Its passages anew: a model keeps its own index there."""

    @property
    @abstractmethod
    def query_rows(self) -> Any:
        """What is asked in training."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """Share of training queries that whoever knows only which kind of answer is asked for gets right."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Of the tokenizer."""
        return Vocabulary.from_tokenizer(self.tokenizer)

    @cached_property
    def queries(self) -> TrainingData:
        """The training text: answers are asked for."""
        return self._data(self.query_rows)

    @cached_property
    def cloze(self) -> TrainingData:
        """Passages by their sentences."""
        return self._data(PassageRows(self.passage_library()))

    def _data(self, rows: Any) -> TrainingData:
        return TrainingData(source=rows, vocabulary=self.vocabulary, tokenizer=self.tokenizer)
