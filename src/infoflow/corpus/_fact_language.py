"""The language of a world of facts: its settings, its words, its facts and their wordings."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Annotated, ClassVar, Literal

import numpy as np

from infoflow.foundation import Limits, Probability, Share, UserError, check_settings, hash64_array

from ._grammar import GrammarConfig
from ._grammar_lexicon import invented_words, listed, make_lexicon

FACTS_VERSION = 1  # increase when the same seed gives different facts or sentences
"""Version of the generator: a world depends only on it, its settings and its seed."""

Wording = Literal["different", "same"]
PassageKind = Literal["entity", "pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactSettings:
    """Settings of a world of facts in a plan."""

    relations: Annotated[int, Limits(at_least=2, at_most=64)] = 8  # even; the last two are dates with two-token objects
    objects: Annotated[int, Limits(at_least=3, at_most=4096)] = 16  # per pair of relations, which share them
    wording: Wording = "different"  # same: queries and passages share two relation words
    passages: PassageKind = "entity"  # one entity per passage, or two entities in one relation
    language: Share = 0.25  # share of the training sentences from `grammar`, for which no passage helps


@dataclass(frozen=True, kw_only=True, slots=True)
class FactConfig(FactSettings):
    """Everything that, with a seed, determines a world of facts: their number, exposure and wording.

    Raises:
        UserError: A setting is out of range; `__post_init__` checks those that depend on each other.
    """

    entities: Annotated[int, Limits(at_least=2, at_most=10**6)] = 256  # at most given × family
    given: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # first names
    family: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # family names
    held_out: Probability = 0.15  # share of facts in a passage but in no training query
    withheld: Probability = 0.15  # share of facts that occur nowhere, as a chance control
    later: Share = 0.1  # share of entities without facts and passages until the index is edited
    changed_every: Annotated[int, Limits(at_least=1, at_most=10**6)] = 7  # one in this many trained facts changes later
    weights: Annotated[tuple[int, ...], Limits(filled=True)] = (1, 4, 16)  # exposures; each is equally frequent
    zipf: bool = False  # objects by Zipf's law, so that guessing the most frequent one scores above 0

    def __post_init__(self) -> None:
        check_settings(self, "facts")
        if self.relations % 2:
            raise UserError(
                f"facts.relations must be even: they come in pairs that share objects. Got {self.relations}.\n"
                "Add or remove one."
            )
        if self.entities > self.given * self.family:
            raise UserError(
                f"facts.entities must be at most the number of full names, {self.given * self.family:,}. "
                f"Got {self.entities:,}.\nRaise facts.given or facts.family, or lower facts.entities."
            )
        if self.held_out + self.withheld > 1:
            raise UserError(
                "facts.held_out and facts.withheld are shares of the same facts and must not exceed 1 together. Got "
                f"{self.held_out} and {self.withheld}.\nLower one of them."
            )
        if min(self.weights) < 1 or max(self.weights) > 1024:
            raise UserError(f"facts.weights must lie in 1..1,024. Got {list(self.weights)}.")

    @property
    def date_relations(self) -> tuple[int, int]:
        """The two relations whose objects are dates."""
        return self.relations - 2, self.relations - 1

    def choices(self, relation: int) -> int:
        """Number of objects of the relation: m of `stored_bits`."""
        return 144 if relation in self.date_relations else self.objects


# The words of a world of facts: listed ones first, then invented ones; no word has two roles.


FACT_LANGUAGE = GrammarConfig(vocabulary=200)
"""The grammar of the non-fact sentences, kept small so that its words are frequent."""
NUM_SYNONYMS = 4
_GIVEN = listed(
    """ada ben carla dmitri elif farid greta hamid ines jonas kira lars mina nils olga pavel rosa sven tara udo vera
    wanda xenia yusuf zora amir bela cyril dora emil fiona gita"""
)
_FAMILY = listed(
    """lund roth meyer novak silva tanaka okafor haddad kowalski rossi dubois ivanov jensen keller larsen moreau nagy
    ortiz petrov quist ramos sato toth ueda vogel weiss xu yilmaz zeman abbas braun cruz"""
)
_RELATIONS = (
    listed("birthplace cradle origin hometown"),
    listed("residence domicile dwelling abode"),
    listed("profession trade occupation job"),
    listed("apprenticeship schooling training craft"),
    listed("pet companion mascot familiar"),
    listed("phobia dread terror horror"),
)
_DATES = (listed("birthday nativity birthdate arrival"), listed("wedding marriage nuptials union"))
_OBJECTS = (
    listed("oslo rome lima cairo quito delhi paris tunis sofia seoul dakar hanoi minsk accra turin basel"),
    listed(
        """barber weaver tailor potter mason brewer tanner cooper glazier joiner butcher printer tinker saddler
        thatcher cobbler"""
    ),
    listed(
        "otter heron badger ferret parrot lizard spider beetle falcon donkey rabbit weasel magpie turtle gecko lynx"
    ),
)
_MONTHS = listed("january february march april may june july august september october november december")
_YEARS = tuple(str(year) for year in range(1901, 1913))
_LANGUAGE_FUNCTION = listed("a an and but or that the .")
_CHOICES = 12


@dataclass(frozen=True, slots=True)
class FactWords:
    """Names, relation words and object words."""

    function: ClassVar[tuple[str, ...]] = listed("the of is has as for , it known that .")
    given: tuple[str, ...]
    family: tuple[str, ...]
    relations: tuple[tuple[str, ...], ...]  # four synonyms of each relation
    objects: tuple[tuple[str, ...], ...]  # for each pair of relations except dates

    def object_words(self, relation: int, number: int) -> tuple[str, ...]:
        """The words of an object of the relation: one word, or the month and year of a date."""
        pair = relation // 2
        if pair < len(self.objects):
            return (self.objects[pair][number],)
        return _MONTHS[number // _CHOICES], _YEARS[number % _CHOICES]

    def vocabulary(self) -> tuple[str, ...]:
        """Every word used in facts, once each."""
        groups = [self.function, self.given, self.family, *self.relations, *self.objects, _MONTHS, _YEARS]
        return tuple(word for group in groups for word in group)


def words_of(config: FactConfig) -> FactWords:
    """The words of a world; a larger one extends the smaller one's words."""
    streams = {purpose: _others(index) for index, purpose in enumerate(("given", "family", "relation", "object"))}

    def filled(known: tuple[str, ...], num: int, purpose: str) -> tuple[str, ...]:
        return *known[:num], *islice(streams[purpose], max(num - len(known), 0))

    pairs = config.relations // 2 - 1
    names = [_RELATIONS[index] if index < len(_RELATIONS) else () for index in range(2 * pairs)]
    things = [_OBJECTS[index] if index < len(_OBJECTS) else () for index in range(pairs)]
    return FactWords(
        given=filled(_GIVEN, config.given, "given"),
        family=filled(_FAMILY, config.family, "family"),
        relations=(*(filled(one, NUM_SYNONYMS, "relation") for one in names), *_DATES),
        objects=tuple(filled(one, config.objects, "object") for one in things),
    )


@cache
def language_words() -> tuple[str, ...]:
    """Every word that can occur in a sentence of `FACT_LANGUAGE`."""
    lexicon = make_lexicon(FACT_LANGUAGE.vocabulary)
    forms = {form for entries in lexicon.values() for one in entries for form in (one.singular, one.plural)}
    return tuple(sorted({*forms, *_LANGUAGE_FUNCTION}))


def _others(index: int) -> Iterator[str]:
    """Invented words for one purpose: every fourth word of one list, so that purposes share no words."""
    fresh = (f"{word}u" for word in invented_words("noun"))  # no word of the language has this ending
    return islice(fresh, index, None, 4)


Kind = Literal["trained", "changed", "held out", "withheld", "later"]
"""Where a fact occurs.

In this order: in training queries and the index; the same, but with another object in the edited index; only in the
index; nowhere; only in the edited index, for an entity that is added later.
"""


@dataclass(frozen=True, slots=True)
class Fact:
    """One object of one entity in one relation."""

    number: int  # in the world: entity × relations + relation
    entity: int
    relation: int
    kind: Kind
    object: int  # 0..choices(relation) − 1, in training
    edited: int  # in the edited index: a different one if the fact is changed
    weight: int  # relative exposure in training; 0 if it is in no training query

    @property
    def trained(self) -> bool:
        """Whether the fact is in training queries."""
        return self.weight > 0


@dataclass(frozen=True, slots=True)
class Question:
    """A sentence about a fact, and the position of its object."""

    fact: int  # number of the fact
    words: tuple[str, ...]
    roles: tuple[str, ...]  # of each word: subject, relation, object, or "" for a function word
    frame: int
    synonym: int

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def answer(self) -> str:
        """The words of the object."""
        return " ".join(word for word, role in zip(self.words, self.roles, strict=True) if role == "object")

    def masked(self, mask: str = "[MASK]") -> str:
        """The sentence with each word of its object masked."""
        return " ".join(mask if role == "object" else word for word, role in zip(self.words, self.roles, strict=True))


# R relation, X subject, Y object; the rest are function words.
_FRAMES = (
    "the R of X is Y",
    "X has Y as R",
    "Y is the R of X",
    "as for the R of X , it is Y",
    "it is known that the R of X is Y",
)
_ROLES = {"R": "relation", "X": "subject", "Y": "object"}
_PASSAGE_SYNONYMS, _QUERY_SYNONYMS = (0, 1), (2, 3)
TEST_WORDINGS = ((4, 3), (0, 2))
"""Frames and synonyms of queries reserved for testing."""
TRAINING_WORDINGS = tuple(pair for pair in product(range(len(_FRAMES)), _QUERY_SYNONYMS) if pair not in TEST_WORDINGS)
"""The other eight."""


def sentence(
    fact: int, name: tuple[str, ...], relation: int, answer: tuple[str, ...], wording: tuple[int, int], words: FactWords
) -> Question:
    """A sentence that says that `name` has `answer` in the relation, in the frame and synonym of `wording`."""
    frame, synonym = wording
    parts = {"R": (words.relations[relation][synonym],), "X": name, "Y": answer}
    spelt = [(word, _ROLES.get(slot, "")) for slot in _FRAMES[frame].split() for word in parts.get(slot, (slot,))]
    return Question(fact, tuple(word for word, _ in spelt), tuple(role for _, role in spelt), frame, synonym)


def query_wording(wording: tuple[int, int], config: FactConfig) -> tuple[int, int]:
    """The frame and synonym of a query: those of passages if the wording is the same."""
    frame, synonym = wording
    return (frame, synonym - len(_PASSAGE_SYNONYMS)) if config.wording == "same" else wording


def passage_wordings(facts: np.ndarray, seed: int) -> list[tuple[int, int]]:
    """Frame and synonym of each fact's sentence in its passage, chosen by the fact's hash."""
    frames = hash64_array(("facts-passage-frame", seed), facts) % np.uint64(len(_FRAMES))
    synonyms = hash64_array(("facts-passage-synonym", seed), facts) % np.uint64(len(_PASSAGE_SYNONYMS))
    return list(zip(frames.astype(int).tolist(), synonyms.astype(int).tolist(), strict=True))
