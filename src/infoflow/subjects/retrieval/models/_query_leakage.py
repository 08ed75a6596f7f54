"""Test questions that training already asked or answered: counts, examples, and scores without them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from infoflow.foundation import UserError, comparable, words_of
from infoflow.results import QUERY_LEAKAGE, RETRIEVAL_SCORES

from ._ranking import Ranked, Relevant
from ._scores import CUTS, retrieval_scores

_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLeakage:
    """Indices of the test questions that occur in training."""

    asked: tuple[int, ...]  # a training query has the same words in the same order
    told: tuple[int, ...]  # a training query contains the subject and an answer
    examples: tuple[tuple[str, str], ...]  # of the first ten: the question, and the training query that leaks it

    num_questions: int = 0  # in the test

    def table(self) -> pd.DataFrame:
        """The table QUERY_LEAKAGE."""
        numbers = {"questions": self.num_questions, "leaked": len(self.leaked)}
        shown = self.examples or (("", ""),)
        return QUERY_LEAKAGE.conform(
            pd.DataFrame([{**numbers, "question": question, "query": query} for question, query in shown])
        )

    @property
    def leaked(self) -> tuple[int, ...]:
        """All leaked questions, in order."""
        return tuple(sorted({*self.asked, *self.told}))

    def __str__(self) -> str:
        if not self.leaked:
            return "No test question is among the training queries."
        lines = [f"  {question!r} ← {query!r}" for question, query in self.examples]
        return "\n".join(
            [f"{len(self.leaked):,} test questions occur in training ({len(self.asked):,} as questions, "
             f"{len(self.told):,} as answers):", *lines]
        )  # fmt: skip


def query_leakage(
    questions: Sequence[str],
    training: Sequence[str],
    answers: Sequence[Sequence[str]] | None = None,
    subjects: Sequence[str] | None = None,
) -> QueryLeakage:
    """Test questions that training has seen, compared by words: lower case, NFD, without punctuation.

    Accents and other marks belong to their letters; in scripts without spaces each character counts as a word.

    Args:
        questions: The test questions.
        training: Training queries before masking.
        answers: Right answers to each question.
        subjects: Subject of each question. If both are given, a training query with the words of the subject and of an
            answer, each in sequence, leaks the question.

    Raises:
        UserError: The numbers of answers or subjects and of questions differ, or only one of the two is given.
    """
    for name, given in (("answers", answers), ("subjects", subjects)):
        if given is not None and len(given) != len(questions):
            raise UserError(f"Each of {len(questions):,} questions needs its {name}. Got {len(given):,}.")
    if (answers is None) != (subjects is None):
        raise UserError(
            "Leakage of answers needs subjects and answers. Got only one of them.\n"
            "Pass subjects and answers, or neither."
        )
    queries = [_words(text) for text in training]
    same: dict[str, int] = {}
    for number, words in enumerate(queries):
        same.setdefault(words, number)
    leaks = {number: same[words] for number, text in enumerate(questions) if (words := _words(text)) and words in same}
    asked = tuple(leaks)
    told = _told(queries, answers, subjects) if answers is not None and subjects is not None else {}
    shown = sorted({**told, **leaks}.items())[:_EXAMPLES]
    examples = tuple((str(questions[number]), str(training[query])) for number, query in shown)
    return QueryLeakage(asked=asked, told=tuple(told), examples=examples, num_questions=len(questions))


def leakage_scores(
    ranked: Mapping[str, Ranked],
    relevant: Relevant,
    questions: Sequence[str],
    num_passages: int,
    leakage: QueryLeakage,
    cuts: Collection[int] = CUTS,
) -> pd.DataFrame:
    """`retrieval_scores` of all questions (queries `all`), and of those not in training (`not leaked`).

    Raises:
        UserError: Every question is leaked, or rankings, questions and relevant passages do not match.
    """
    known = set(leakage.leaked)
    if known and max(known) >= len(questions):
        raise UserError(
            f"The leakage belongs to other questions: it names number {max(known)}, and there are {len(questions):,}."
        )
    kept = [number for number in range(len(questions)) if number not in known]
    if not kept:
        raise UserError(
            f"All {len(questions):,} test questions occur in training, so nothing is left to score.\n"
            "Use test questions that are not among the training queries."
        )
    parts = [retrieval_scores(ranked, relevant, questions, num_passages, cuts, "all")]
    if known:
        fewer = {system: [rows[number] for number in kept] for system, rows in ranked.items()}
        own = [relevant[number] for number in kept]
        asked = [questions[number] for number in kept]
        parts.append(retrieval_scores(fewer, own, asked, num_passages, cuts, "not leaked"))
    return RETRIEVAL_SCORES.conform(pd.concat(parts, ignore_index=True))


def _told(queries: list[str], answers: Sequence[Sequence[str]], subjects: Sequence[str]) -> dict[int, int]:
    """The first training query that answers each question."""
    wanted = [_words(one) for one in subjects]
    words = {word for one in wanted for word in one.split()}
    places: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(queries):
        for word in words.intersection(text.split()):
            places[word].append(number)
    found = {}
    for number, (subject, right) in enumerate(zip(wanted, answers, strict=True)):
        objects = [one for one in map(_words, right) if one]
        rarest = min((places.get(word, []) for word in subject.split()), key=len, default=[])
        for query in rarest:
            if _holds(queries[query], subject) and any(_holds(queries[query], one) for one in objects):
                found[number] = query
                break
    return found


def _holds(text: str, words: str) -> bool:
    return f" {words} " in f" {text} "


def _words(text: str) -> str:
    return " ".join(words_of(comparable(text, decompose=True).lower()))
