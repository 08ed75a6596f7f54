"""The world of facts of a study: its text as queries, its passages, in tokens."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

from infoflow.corpus import FactConfig, FactWorld, generate_facts
from infoflow.retrieval import Library, Passages
from infoflow.training import fact_query_rows

from ._reading_matter import AbstractReadingMatter


@final
@dataclass(frozen=True, eq=False)
class ReadWorld(AbstractReadingMatter):
    """A world with its tokenizer."""

    world: FactWorld
    positions: int

    @cached_property
    def tokenizer(self) -> Any:
        """A word each."""
        return self.world.tokenizer(self.positions)

    def passage_library(self, edited: bool = False) -> Library:
        """Its passages, or those of the edited index."""
        return Library(Passages.from_rows(self.world.passages(edited)), self.tokenizer, self.positions)

    @cached_property
    def query_rows(self) -> Any:
        """Objects are asked for; a long sentence of the language is cut so that the reader's [SEP] fits behind it."""
        return fact_query_rows(self.world, self.world.tokenizer(self.positions - 1), self.passage_library())

    @property
    def chance(self) -> float:
        """A guess among the objects of a relation, of one word unless all are dates."""
        return 1 / self.world.config.choices(0)


@lru_cache(maxsize=4)
def read_world(config: FactConfig, seed: int, positions: int) -> ReadWorld:
    """The world of these settings, generated once in a process."""
    return ReadWorld(generate_facts(config, seed), positions)
