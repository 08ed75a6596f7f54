"""Writes the translation: a transducer from abstract syntax to a language that marks what the source hides.

Verbs come last in their clause; adjectives follow the noun, degree words the adjective; determiners, adjectives and
relative pronouns agree with the noun in gender and number, verbs with their subject, across any distance; the relative
pronoun marks subject or object. Gender comes from the lexicon only. Every target form has one source lemma, so a
translation can be mapped back to the source's words.
"""

from typing import NamedTuple

from ._syntax import Clause, NounPhrase, PrepositionalPhrase, Relative, VerbPhrase


class GenderAndNumber(NamedTuple):
    feminine: bool
    plural: bool

    def of(self, forms: tuple[str, str, str, str]) -> str:
        """The form among masculine singular, feminine singular, masculine plural, feminine plural."""
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
    """The words of the translation."""
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
