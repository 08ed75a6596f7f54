"""The training text of a world of facts as rows of a corpus."""

from collections.abc import Iterator
from itertools import islice

from .._columns import Row
from .._grammar import grammar_rows
from ._sentences import TRAINING_WORDINGS
from ._words import FACT_LANGUAGE
from ._world import FactWorld

FACT_COLUMNS = ("text", "words", "entity", "label")


def fact_rows(world: FactWorld) -> Iterator[Row]:
    """Every trained fact in all its wordings, repeated by its weight, mixed with sentences of the language.

    For a fact, `label` is its number and `entity` the role of each word; a sentence of the language has neither.
    """
    done = 0
    language = grammar_rows(num_language(world, num_queries(world)), world.seed, FACT_LANGUAGE)
    for count, one in enumerate(world.training_sentences(), start=1):
        yield {"text": one.text, "words": list(one.words), "entity": list(one.roles), "label": str(one.fact)}
        for row in islice(language, num_language(world, count) - done):
            words = row["words"]
            yield {"text": row["text"], "words": words, "entity": [""] * len(words), "label": None}
        done = num_language(world, count)


def num_queries(world: FactWorld) -> int:
    """Sentences about facts in the training text."""
    return len(TRAINING_WORDINGS) * sum(fact.weight for fact in world.facts)


def num_language(world: FactWorld, queries: int) -> int:
    """Number of language sentences for this many fact sentences."""
    return round(queries * world.config.language / (1 - world.config.language))
