"""A sentence of `grammar`: its abstract syntax, and the source sentence with its gold analysis."""

from dataclasses import dataclass, field

from ._grammar_lexicon import Lemma

# The abstract syntax of a sentence, which determines its surface, its analysis and its translation.
#
# Every source sentence has one translation, by these attachment conventions:
#
# - a frequency adverb comes before its verb, a manner adverb after it, and they are different words;
# - the first noun phrase of a coordination has no prepositional phrase or relative clause;
# - a noun takes a prepositional phrase or a relative clause, not both (the inner noun may take a relative clause);
# - nothing follows a relative clause inside the verb phrase that contains it, and verb phrases are coordinated only
#   outside relative clauses.


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
        """Whether a verb with this subject takes the plural."""
        return self.plural or self.second is not None

    @property
    def agrees_feminine(self) -> bool:
        """Whether a target verb takes the feminine: only if every coordinated noun is feminine."""
        return self.noun.feminine and (self.second is None or self.second.agrees_feminine)

    @property
    def ends_in_relative(self) -> bool:
        """Whether the last words belong to a relative clause, to which following words would be attached."""
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


# Writes the source sentence with its gold analysis.
#
# Universal Dependencies v2 relations, Universal POS tags, and CCG supertags from which the sentence's S can be derived
# by application, forward composition, type-raising of subjects (NP → S/(S\NP)) and the rule N → NP for bare plurals.


_VP = r"(S\NP)"
DETERMINER, ADJECTIVE, DEGREE = "NP/N", "N/N", "(N/N)/(N/N)"
NOUN, NAME, STOP = "N", "NP", r"S\S"
INTRANSITIVE, TRANSITIVE = r"S\NP", r"(S\NP)/NP"
BEFORE_VERB, AFTER_VERB = rf"{_VP}/{_VP}", rf"{_VP}\{_VP}"
NOUN_PLACE, VERB_PLACE = r"(NP\NP)/NP", rf"({AFTER_VERB})/NP"
NOUN_AND, VERB_AND, CLAUSE_AND = r"(NP\NP)/NP", rf"({AFTER_VERB})/{_VP}", r"(S\S)/S"
SUBJECT_THAT, OBJECT_THAT = r"(NP\NP)/(S\NP)", r"(NP\NP)/(S/NP)"

_ROOT = -1


class SourceSentence:
    """The words of a sentence in order, each with its tags; `head` −1 is the root."""

    def __init__(self, clause: Clause) -> None:
        self.words: list[str] = []
        self.upos: list[str] = []
        self.ccg: list[str] = []
        self.head: list[int] = []
        self.deprel: list[str] = []
        root = self._clause(clause)
        self._attach(root, _ROOT, "root")
        self._attach(self._add(".", "PUNCT", STOP), root, "punct")

    def _add(self, word: str, upos: str, ccg: str) -> int:
        if self.words and self.words[-1] == "a" and word[0] in "aeiou":
            self.words[-1] = "an"
        self.words.append(word)
        self.upos.append(upos)
        self.ccg.append(ccg)
        self.head.append(_ROOT)
        self.deprel.append("")
        return len(self.words) - 1

    def _attach(self, word: int, head: int, relation: str) -> None:
        self.head[word], self.deprel[word] = head, relation

    def _join(self, conjunction: int, first: int, second: int) -> None:
        """Universal Dependencies attach the conjunction to the second conjunct, and that conjunct to the first."""
        self._attach(conjunction, second, "cc")
        self._attach(second, first, "conj")

    def _clause(self, clause: Clause) -> int:
        subject = self._noun_phrase(clause.subject)
        verb = self._verb_phrase(clause.verb_phrase, clause.subject.agrees_plural)
        self._attach(subject, verb, "nsubj")
        if clause.second:
            conjunction = self._add(clause.conjunction, "CCONJ", CLAUSE_AND)
            self._join(conjunction, verb, self._clause(clause.second))
        return verb

    def _noun_phrase(self, phrase: NounPhrase) -> int:
        noun = self._noun(phrase)
        if phrase.place:
            self._place(phrase.place, noun, "nmod", NOUN_PLACE)
        if phrase.relative:
            self._relative(phrase.relative, noun, phrase.plural)
        if phrase.second:
            conjunction = self._add("and", "CCONJ", NOUN_AND)
            self._join(conjunction, noun, self._noun_phrase(phrase.second))
        return noun

    def _noun(self, phrase: NounPhrase) -> int:
        if phrase.is_name:
            return self._add(phrase.noun.lemma, "PROPN", NAME)
        determiner = self._add(phrase.determiner, "DET", DETERMINER) if phrase.determiner else None
        adjectives = [self._adjective(adjective) for adjective in phrase.adjectives]
        noun = self._add(phrase.noun.plural if phrase.plural else phrase.noun.singular, "NOUN", NOUN)
        if determiner is not None:
            self._attach(determiner, noun, "det")
        for adjective in adjectives:
            self._attach(adjective, noun, "amod")
        return noun

    def _adjective(self, adjective: Adjective) -> int:
        degree = self._add(adjective.degree.lemma, "ADV", DEGREE) if adjective.degree else None
        index = self._add(adjective.entry.lemma, "ADJ", ADJECTIVE)
        if degree is not None:
            self._attach(degree, index, "advmod")
        return index

    def _place(self, place: PrepositionalPhrase, head: int, relation: str, ccg: str) -> None:
        preposition = self._add(place.preposition.lemma, "ADP", ccg)
        noun = self._noun_phrase(place.noun)
        self._attach(preposition, noun, "case")
        self._attach(noun, head, relation)

    def _relative(self, relative: Relative, noun: int, noun_is_plural: bool) -> None:
        that = self._add("that", "PRON", OBJECT_THAT if relative.subject else SUBJECT_THAT)
        if relative.subject:
            subject = self._noun_phrase(relative.subject)
            verb = self._verb_phrase(relative.verb_phrase, relative.subject.agrees_plural, gap=True)
            self._attach(subject, verb, "nsubj")
            self._attach(that, verb, "obj")
        else:
            verb = self._verb_phrase(relative.verb_phrase, noun_is_plural)
            self._attach(that, verb, "nsubj")
        self._attach(verb, noun, "acl:relcl")

    def _verb_phrase(self, phrase: VerbPhrase, plural: bool, gap: bool = False) -> int:
        """`gap`: the verb is transitive, and its object is the relative pronoun."""
        frequency = self._adverb(phrase.frequency, BEFORE_VERB)
        form = phrase.verb.plural if plural else phrase.verb.singular
        verb = self._add(form, "VERB", TRANSITIVE if phrase.object or gap else INTRANSITIVE)
        if phrase.object:
            self._attach(self._noun_phrase(phrase.object), verb, "obj")
        manner = self._adverb(phrase.manner, AFTER_VERB)
        for adverb in (frequency, manner):
            if adverb is not None:
                self._attach(adverb, verb, "advmod")
        for place in phrase.places:
            self._place(place, verb, "obl", VERB_PLACE)
        if phrase.second:
            conjunction = self._add(phrase.conjunction, "CCONJ", VERB_AND)
            self._join(conjunction, verb, self._verb_phrase(phrase.second, plural))
        return verb

    def _adverb(self, entry: Lemma | None, ccg: str) -> int | None:
        return self._add(entry.lemma, "ADV", ccg) if entry else None
