"""Draws the abstract syntax of a sentence."""

from dataclasses import dataclass

from ._draws import Draws, Zipfian
from ._lexicon import Lemma, Lexicon
from ._syntax import Adjective, Clause, NounPhrase, PrepositionalPhrase, Relative, VerbPhrase


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


class Sampler:
    """Draws sentences of a lexicon; deeper phrases are simpler, so that every sentence ends."""

    def __init__(self, lexicon: Lexicon, rates: Rates, exponent: float, max_depth: int) -> None:
        self._words: dict[str, Zipfian[Lemma]] = {
            word_class: Zipfian(entries, exponent) for word_class, entries in lexicon.entries.items()
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
