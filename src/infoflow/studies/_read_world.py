"""The world of facts of a study: its text as queries, its passages, in tokens."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

from infoflow.corpus import FactConfig, FactWorld, Vocabulary, generate_facts
from infoflow.retrieval import Library, Passages
from infoflow.training import PassageRows, TrainingData, fact_query_rows


@final
@dataclass(frozen=True, eq=False)
class ReadWorld:
    """A world with its tokenizer; readers of a study share it."""

    world: FactWorld
    positions: int  # tokens of an input at most

    @cached_property
    def tokenizer(self) -> Any:
        """A word each."""
        return self.world.tokenizer(self.positions)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Of the tokenizer."""
        return Vocabulary.from_tokenizer(self.tokenizer)

    def passage_library(self, edited: bool = False) -> Library:
        """Its passages anew: a model keeps its own index there."""
        return Library(Passages.from_rows(self.world.passages(edited)), self.tokenizer, self.positions)

    @cached_property
    def queries(self) -> TrainingData:
        """The training text: objects are asked for."""
        return self._data(fact_query_rows(self.world, self.tokenizer, self.passage_library()))

    @cached_property
    def cloze(self) -> TrainingData:
        """Passages by their sentences."""
        return self._data(PassageRows(self.passage_library()))

    def _data(self, rows: Any) -> TrainingData:
        return TrainingData(source=rows, vocabulary=self.vocabulary, tokenizer=self.tokenizer)


@lru_cache(maxsize=3)
def read_world(config: FactConfig, seed: int, positions: int) -> ReadWorld:
    """The world of these settings, generated once in a process."""
    return ReadWorld(generate_facts(config, seed), positions)
