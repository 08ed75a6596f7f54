"""Sentences of the grammar as rows of a corpus."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from .._categories import CategoryParts, split_category
from .._columns import Row
from ._draws import draws_of
from ._lexicon import make_lexicon
from ._sampler import Rates, Sampler
from ._source import SourceSentence
from ._target import translate

GRAMMAR_VERSION = 1  # raise when the same seed gives other sentences
GRAMMAR_COLUMNS = ("text", "translation", "words", "upos", "head", "deprel", "ccg", "ccg_left", "ccg_right")


@dataclass(frozen=True, kw_only=True, slots=True)
class GrammarConfig:
    """The language of a generated corpus."""

    vocabulary: int = 1000  # lemmas of the open classes; the first 200 or so are English words
    exponent: float = 1.0  # of Zipf's law within each word class
    max_depth: int = 2  # how deeply phrases are nested
    rates: Rates = field(default_factory=Rates)


def grammar_rows(num: int, seed: int, config: GrammarConfig) -> Iterator[Row]:
    """Sentences 0..num − 1; sentence i is a function of (seed, i, config)."""
    sampler = Sampler(make_lexicon(config.vocabulary), config.rates, config.exponent, config.max_depth)
    for draws in draws_of(seed, num):
        clause = sampler.sentence(draws)
        source = SourceSentence(clause)
        parts = [_parts(category) for category in source.ccg]
        yield {
            "text": " ".join(source.words),
            "translation": " ".join(translate(clause)),
            "words": source.words,
            "upos": source.upos,
            "head": source.head,
            "deprel": source.deprel,
            "ccg": source.ccg,
            "ccg_left": [part.left for part in parts],
            "ccg_right": [part.right for part in parts],
        }


@cache
def _parts(category: str) -> CategoryParts:
    return split_category(category)
