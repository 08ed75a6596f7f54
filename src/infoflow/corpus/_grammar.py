"""Sentences of the grammar as rows of a corpus.

Translations come from a transducer from abstract syntax to a language that marks what English leaves unmarked.

Verbs come last in their clause; adjectives follow the noun, degree words the adjective; determiners, adjectives and
relative pronouns agree with the noun in gender and number, verbs with their subject, across any distance; the relative
pronoun marks subject or object. Gender comes from the lexicon only. Every target form has one source lemma, so a
translation can be mapped back to the source's words.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from infoflow.foundation import hash64_array

from ._columns import Row
from ._grammar_lexicon import Lemma, Lexicon, make_lexicon
from ._grammar_source import Adjective, Clause, NounPhrase, PrepositionalPhrase, Relative, SourceSentence, VerbPhrase
from ._tagged import split_category

GRAMMAR_VERSION = 1  # increase when the same seed gives different sentences
GRAMMAR_COLUMNS = ("text", "translation", "words", "upos", "head", "deprel", "ccg", "ccg_left", "ccg_right")
Item = TypeVar("Item")

_CHUNK_SENTENCES = 512
_DRAWS_AT_ONCE = 96  # numbers per sentence; the few sentences that need more of them draw another block


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """How often each construction is used if the grammar allows it."""

    plural: float = 0.4
    name: float = 0.15
    indefinite: float = 0.35
    adjective: float = 0.35
    degree: float = 0.2
    place: float = 0.22
    relative: float = 0.22
    object_relative: float = 0.45
    transitive: float = 0.65
    frequency: float = 0.2
    manner: float = 0.2
    noun_coordination: float = 0.1
    verb_coordination: float = 0.1
    clause_coordination: float = 0.06


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


_parts = cache(split_category)


class GenderAndNumber(NamedTuple):
    feminine: bool
    plural: bool

    def of(self, forms: tuple[str, str, str, str]) -> str:
        """The masculine singular, feminine singular, masculine plural or feminine plural form."""
        return forms[2 * self.plural + self.feminine]


THE = ("lo", "la", "los", "las")
A = ("un", "una", "", "")  # no plural
SUBJECT_THAT = ("ke", "ka", "kes", "kas")
OBJECT_THAT = ("kem", "kam", "kems", "kams")
CONJUNCTIONS = {"and": "e", "but": "ma", "or": "od"}
STOP = "."
NOUN_PLURAL = "uy"
ADJECTIVE_ENDINGS = ("o", "a", "os", "as")
VERB_ENDINGS = ("eth", "ath", "ethi", "athi")
ADVERB_ENDING = "im"
DEGREE_ENDING = "um"


def translate(clause: Clause) -> list[str]:
    """The words of the clause's translation."""
    return [*_clause(clause), STOP]


def _clause(clause: Clause) -> list[str]:
    words = _noun_phrase(clause.subject) + _verb_phrase(clause.verb_phrase, _of_subject(clause.subject))
    if clause.second:
        words += [CONJUNCTIONS[clause.conjunction], *_clause(clause.second)]
    return words


def _of_subject(subject: NounPhrase) -> GenderAndNumber:
    return GenderAndNumber(subject.agrees_feminine, subject.agrees_plural)


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    words = [phrase.noun.target] if phrase.is_name else _noun(phrase)
    if phrase.place:
        words += _place(phrase.place)
    if phrase.relative:
        words += _relative(phrase.relative, GenderAndNumber(phrase.noun.feminine, phrase.plural))
    if phrase.second:
        words += [CONJUNCTIONS["and"], *_noun_phrase(phrase.second)]
    return words


def _noun(phrase: NounPhrase) -> list[str]:
    agreement = GenderAndNumber(phrase.noun.feminine, phrase.plural)
    words = [agreement.of(THE if phrase.determiner == "the" else A)] if phrase.determiner else []
    words.append(phrase.noun.target + (NOUN_PLURAL if phrase.plural else ""))
    for adjective in phrase.adjectives:
        words.append(adjective.entry.target + agreement.of(ADJECTIVE_ENDINGS))
        if adjective.degree:
            words.append(adjective.degree.target + DEGREE_ENDING)
    return words


def _place(place: PrepositionalPhrase) -> list[str]:
    return [place.preposition.target, *_noun_phrase(place.noun)]


def _relative(relative: Relative, noun: GenderAndNumber) -> list[str]:
    if relative.subject is None:
        return [noun.of(SUBJECT_THAT), *_verb_phrase(relative.verb_phrase, noun)]
    subject = _noun_phrase(relative.subject)
    return [noun.of(OBJECT_THAT), *subject, *_verb_phrase(relative.verb_phrase, _of_subject(relative.subject))]


def _verb_phrase(phrase: VerbPhrase, subject: GenderAndNumber) -> list[str]:
    words = _noun_phrase(phrase.object) if phrase.object else []
    for place in phrase.places:
        words += _place(place)
    words += [adverb.target + ADVERB_ENDING for adverb in (phrase.manner, phrase.frequency) if adverb]
    words.append(phrase.verb.target + subject.of(VERB_ENDINGS))
    if phrase.second:
        words += [CONJUNCTIONS[phrase.conjunction], *_verb_phrase(phrase.second, subject)]
    return words


class Draws:
    """The sequence of uniform random numbers for sentence `index` under `seed`."""

    def __init__(self, seed: int, index: int, first: list[float]) -> None:
        self._seed, self._index = seed, index
        self._portion = 0
        self._numbers = iter(first)

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        for number in self._numbers:
            return number
        self._portion += 1
        counters = np.arange(self._portion * _DRAWS_AT_ONCE, (self._portion + 1) * _DRAWS_AT_ONCE)
        self._numbers = iter(uniform(("grammar", self._seed), np.array([self._index]), counters).tolist())
        return next(self._numbers)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.uniform() < probability

    def pick(self, items: "Zipfian[Item]") -> Item:
        """A random item, drawn by its frequency."""
        return items.at(self.uniform())


class Sampler:
    """Draws sentences from a lexicon; deeper phrases are simpler, so that every sentence ends."""

    def __init__(self, lexicon: Lexicon, rates: Rates, exponent: float, max_depth: int) -> None:
        self._words: dict[str, Zipfian[Lemma]] = {
            word_class: Zipfian(entries, exponent) for word_class, entries in lexicon.items()
        }
        self._conjunctions = Zipfian(("and", "but", "or"), 1.0)
        self._rates = rates
        self._max_depth = max_depth

    def sentence(self, draws: Draws) -> Clause:
        """A sentence of one or two clauses."""
        first = self._clause(draws)
        if draws.chance(self._rates.clause_coordination):
            first.conjunction = draws.pick(self._conjunctions)
            first.second = self._clause(draws)
        return first

    def _clause(self, draws: Draws) -> Clause:
        subject = self._noun_phrase(draws, 0)
        verb_phrase = self._verb_phrase(draws, 0)
        if draws.chance(self._rates.verb_coordination):
            verb_phrase.conjunction = draws.pick(self._conjunctions)
            verb_phrase.second = self._verb_phrase(draws, 1)
        return Clause(subject, verb_phrase)

    def _noun_phrase(self, draws: Draws, depth: int) -> NounPhrase:
        phrase = self._bare_noun_phrase(draws)
        if draws.chance(self._rates.noun_coordination):
            phrase.second = self._bare_noun_phrase(draws)
        last = phrase.second or phrase
        if depth < self._max_depth and not last.is_name:
            kind = draws.uniform()
            if kind < self._rates.place:
                last.place = self._place(draws, depth + 1)
            elif kind < self._rates.place + self._rates.relative:
                last.relative = self._relative(draws, depth + 1)
        return phrase

    def _bare_noun_phrase(self, draws: Draws) -> NounPhrase:
        if draws.chance(self._rates.name):
            return NounPhrase(draws.pick(self._words["name"]), is_name=True)
        plural = draws.chance(self._rates.plural)
        indefinite = None if plural else "a"
        phrase = NounPhrase(
            draws.pick(self._words["noun"]),
            plural=plural,
            determiner=indefinite if draws.chance(self._rates.indefinite) else "the",
        )
        while len(phrase.adjectives) < 2 and draws.chance(self._rates.adjective):
            degree = draws.pick(self._words["degree"]) if draws.chance(self._rates.degree) else None
            phrase.adjectives.append(Adjective(draws.pick(self._words["adjective"]), degree))
        return phrase

    def _place(self, draws: Draws, depth: int) -> PrepositionalPhrase:
        return PrepositionalPhrase(draws.pick(self._words["preposition"]), self._noun_phrase(draws, depth))

    def _relative(self, draws: Draws, depth: int) -> Relative:
        if draws.chance(self._rates.object_relative):
            subject = self._noun_phrase(draws, depth)
            verb_phrase = VerbPhrase(draws.pick(self._words["transitive"]), frequency=self._frequency(draws))
            return Relative(verb_phrase, subject)
        return Relative(self._verb_phrase(draws, depth))

    def _verb_phrase(self, draws: Draws, depth: int) -> VerbPhrase:
        frequency = self._frequency(draws)
        if draws.chance(self._rates.transitive):
            phrase = VerbPhrase(draws.pick(self._words["transitive"]), self._noun_phrase(draws, depth), frequency)
        else:
            phrase = VerbPhrase(draws.pick(self._words["intransitive"]), frequency=frequency)
        if phrase.object is None or not phrase.object.ends_in_relative:
            if draws.chance(self._rates.manner):
                phrase.manner = draws.pick(self._words["manner"])
            if depth < self._max_depth and draws.chance(self._rates.place):
                phrase.places.append(self._place(draws, depth + 1))
        return phrase

    def _frequency(self, draws: Draws) -> Lemma | None:
        return draws.pick(self._words["frequency"]) if draws.chance(self._rates.frequency) else None


class Zipfian(Generic[Item]):
    r"""Items whose probability falls with their rank: $p_r \propto r^{-s}$."""

    def __init__(self, items: Sequence[Item], exponent: float) -> None:
        self._items = items
        cumulative = list(accumulate((rank + 1) ** -exponent for rank in range(len(items))))
        self._cumulative = [value / cumulative[-1] for value in cumulative]

    def at(self, share: float) -> Item:
        """The item at this share of the probability mass."""
        return self._items[min(bisect(self._cumulative, share), len(self._items) - 1)]


def draws_of(seed: int, num: int) -> Iterator[Draws]:
    """The random draws for sentences 0..num − 1, computed for many sentences at a time."""
    counters = np.arange(_DRAWS_AT_ONCE)
    for start in range(0, num, _CHUNK_SENTENCES):
        indices = np.arange(start, min(start + _CHUNK_SENTENCES, num))
        numbers = uniform(("grammar", seed), indices[:, None], counters[None, :]).tolist()
        for index, first in zip(indices.tolist(), numbers, strict=True):
            yield Draws(seed, index, first)


def uniform(key: tuple[str, int], *columns: np.ndarray) -> np.ndarray:
    """A uniform number in [0, 1) for each row, with the 53 bits of a float, so that 1.0 never occurs."""
    return (hash64_array(key, *columns) >> np.uint64(11)) * 2.0**-53
