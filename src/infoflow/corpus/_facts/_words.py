"""The words of a world of facts: listed ones first, then invented ones; no word has two roles."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from .._grammar import GrammarConfig, make_lexicon
from .._grammar._lexicon import invented_words
from ._config import FactConfig


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FACT_LANGUAGE = GrammarConfig(vocabulary=200)
"""The grammar of the non-fact sentences: small, so that its words are frequent."""
NUM_SYNONYMS = 4
_GIVEN = _listed(
    """ada ben carla dmitri elif farid greta hamid ines jonas kira lars mina nils olga pavel rosa sven tara udo vera
    wanda xenia yusuf zora amir bela cyril dora emil fiona gita"""
)
_FAMILY = _listed(
    """lund roth meyer novak silva tanaka okafor haddad kowalski rossi dubois ivanov jensen keller larsen moreau nagy
    ortiz petrov quist ramos sato toth ueda vogel weiss xu yilmaz zeman abbas braun cruz"""
)
_RELATIONS = (
    _listed("birthplace cradle origin hometown"),
    _listed("residence domicile dwelling abode"),
    _listed("profession trade occupation job"),
    _listed("apprenticeship schooling training craft"),
    _listed("pet companion mascot familiar"),
    _listed("phobia dread terror horror"),
)
_DATES = (_listed("birthday nativity birthdate arrival"), _listed("wedding marriage nuptials union"))
_OBJECTS = (
    _listed("oslo rome lima cairo quito delhi paris tunis sofia seoul dakar hanoi minsk accra turin basel"),
    _listed(
        """barber weaver tailor potter mason brewer tanner cooper glazier joiner butcher printer tinker saddler
        thatcher cobbler"""
    ),
    _listed(
        "otter heron badger ferret parrot lizard spider beetle falcon donkey rabbit weasel magpie turtle gecko lynx"
    ),
)
_MONTHS = _listed("january february march april may june july august september october november december")
_YEARS = tuple(str(year) for year in range(1901, 1913))
_FUNCTION = _listed("the of is has as for , it known that .")
_LANGUAGE_FUNCTION = _listed("a an and but or that the .")
_CHOICES = 12


@dataclass(frozen=True, slots=True)
class FactWords:
    """Names, relation words and object words."""

    given: tuple[str, ...]
    family: tuple[str, ...]
    relations: tuple[tuple[str, ...], ...]  # four synonyms of each relation
    objects: tuple[tuple[str, ...], ...]  # for each pair of relations except dates
    function: tuple[str, ...]

    def object_words(self, relation: int, number: int) -> tuple[str, ...]:
        """The words of an object of the relation: one, or month and year."""
        pair = relation // 2
        if pair < len(self.objects):
            return (self.objects[pair][number],)
        return _MONTHS[number // _CHOICES], _YEARS[number % _CHOICES]

    def vocabulary(self) -> tuple[str, ...]:
        """Every word used in facts, once each."""
        groups = [self.function, self.given, self.family, *self.relations, *self.objects, _MONTHS, _YEARS]
        return tuple(word for group in groups for word in group)


@cache
def make_words(given: int, family: int, relations: int, objects: int) -> FactWords:
    """Words for this many names, relations and objects; a larger world extends the smaller one's words."""
    streams = {purpose: _others(index) for index, purpose in enumerate(("given", "family", "relation", "object"))}

    def filled(listed: tuple[str, ...], num: int, purpose: str) -> tuple[str, ...]:
        return *listed[:num], *islice(streams[purpose], max(num - len(listed), 0))

    pairs = relations // 2 - 1
    names = [_RELATIONS[index] if index < len(_RELATIONS) else () for index in range(2 * pairs)]
    things = [_OBJECTS[index] if index < len(_OBJECTS) else () for index in range(pairs)]
    return FactWords(
        given=filled(_GIVEN, given, "given"),
        family=filled(_FAMILY, family, "family"),
        relations=(*(filled(one, NUM_SYNONYMS, "relation") for one in names), *_DATES),
        objects=tuple(filled(one, objects, "object") for one in things),
        function=_FUNCTION,
    )


def words_of(config: FactConfig) -> FactWords:
    """The words of a world."""
    return make_words(config.given, config.family, config.relations, config.objects)


@cache
def language_words() -> tuple[str, ...]:
    """Every word that can occur in a sentence of `FACT_LANGUAGE`."""
    lexicon = make_lexicon(FACT_LANGUAGE.vocabulary)
    forms = {form for entries in lexicon.entries.values() for one in entries for form in (one.singular, one.plural)}
    return tuple(sorted({*forms, *_LANGUAGE_FUNCTION}))


def _others(index: int) -> Iterator[str]:
    """Invented words for one purpose: every fourth of one list, so that purposes share no words."""
    fresh = (f"{word}u" for word in invented_words("noun"))  # no word of the language has this ending
    return islice(fresh, index, None, 4)
