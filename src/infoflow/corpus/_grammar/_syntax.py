"""The abstract syntax of a sentence, which determines its surface, its analysis and its translation.

Every source sentence has one translation, by these attachment conventions:

- a frequency adverb stands before its verb, a manner adverb after it, and they are different words;
- of a coordination of noun phrases the first is bare of prepositional phrases and relative clauses;
- a noun takes a prepositional phrase or a relative clause, not both (the inner noun may take a relative clause);
- nothing follows a relative clause inside the verb phrase that holds it, and verb phrases coordinate outside
  relative clauses only.
"""

from dataclasses import dataclass, field

from ._lexicon import Lemma


@dataclass(slots=True)
class Adjective:
    entry: Lemma
    degree: Lemma | None = None


@dataclass(slots=True)
class NounPhrase:
    """A name, or a noun with its modifiers; `second` is the other part of a coordination with *and*."""

    noun: Lemma
    is_name: bool = False
    plural: bool = False
    determiner: str | None = None  # "the", "a", or none (names and bare plurals)
    adjectives: list[Adjective] = field(default_factory=list)
    place: "PrepositionalPhrase | None" = None
    relative: "Relative | None" = None
    second: "NounPhrase | None" = None

    @property
    def agrees_plural(self) -> bool:
        """The number that a verb agrees with in this subject."""
        return self.plural or self.second is not None

    @property
    def agrees_feminine(self) -> bool:
        """The gender that a target verb agrees with: feminine if every coordinated noun is."""
        return self.noun.feminine and (self.second is None or self.second.agrees_feminine)

    @property
    def ends_in_relative(self) -> bool:
        """Whether the last words belong to a relative clause, which would absorb following words."""
        if self.second:
            return self.second.ends_in_relative
        return self.relative is not None or (self.place is not None and self.place.noun.ends_in_relative)


@dataclass(slots=True)
class PrepositionalPhrase:
    """A prepositional phrase."""

    preposition: Lemma
    noun: NounPhrase


@dataclass(slots=True)
class VerbPhrase:
    """`frequency verb object manner places`, and optionally another verb phrase of the same subject."""

    verb: Lemma
    object: NounPhrase | None = None
    frequency: Lemma | None = None
    manner: Lemma | None = None
    places: list[PrepositionalPhrase] = field(default_factory=list)
    conjunction: str = ""
    second: "VerbPhrase | None" = None


@dataclass(slots=True)
class Relative:
    """`that sees the dog` (no subject of its own), or `that the dog sees` (the noun is the object)."""

    verb_phrase: VerbPhrase
    subject: NounPhrase | None = None


@dataclass(slots=True)
class Clause:
    subject: NounPhrase
    verb_phrase: VerbPhrase
    conjunction: str = ""
    second: "Clause | None" = None
