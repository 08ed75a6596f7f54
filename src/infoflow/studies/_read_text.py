"""Questions about real passages as what readers are trained on and asked: in place of a generated world of facts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np

from infoflow.adaptation import load_task
from infoflow.corpus import Corpus, train_tokenizer
from infoflow.foundation import current_display, digest
from infoflow.retrieval import Library, Passages, QueryLeakage, query_leakage
from infoflow.training import QueryRows, QuestionRows, question_rows

from ._reading_matter import AbstractReadingMatter

TRAINED, HELD_OUT = "trained", "held out"
_QUERY_SHARE = 0.5  # of the reader's positions, for a question with its answer


@final
@dataclass(frozen=True, eq=False)
class Questions:
    """Questions that masks can ask, and what is right."""

    rows: QueryRows
    texts: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]  # all that are right; masks are as many as the first admissible one has tokens
    gold: np.ndarray  # int64 (question,): the passage that it was asked about


@final
@dataclass(frozen=True, eq=False)
class ReadText(AbstractReadingMatter):
    """Passages with questions whose answers stand in them, in three parts.

    The index holds the passages of all parts. Readers are trained on questions of `train`; `test` is asked, and `dev`
    is there to choose settings on.
    """

    parts: Mapping[str, Corpus]
    vocabulary_size: int
    positions: int
    answer_tokens: int  # of an answer at most

    @cached_property
    def tokenizer(self) -> Any:
        """Learned from all passages, and the questions of training."""
        texts = [*self._texts, *(str(one) for one in self.parts["train"].column("question"))]
        return train_tokenizer(texts, self.vocabulary_size, max_length=self.positions)

    @cached_property
    def digest(self) -> str:
        """What decides the tokens."""
        parts = [self.parts[name].digest for name in ("train", "dev", "test")]
        return digest(["questions", *parts, self.vocabulary_size, self.positions, self.answer_tokens])

    def passage_library(self) -> Library:
        """Passages longer than what is read are cut around their answers, so that the right one can be told."""
        return Library(Passages.from_rows(self._texts), self.tokenizer, self.positions, answers=self._answers)

    @property
    def query_rows(self) -> QueryRows:
        return self.questions[TRAINED].rows

    @cached_property
    def questions(self) -> dict[str, Questions]:
        """Those of training, and those that are kept from it."""
        library = self.passage_library()
        _tell_of(library)
        return {TRAINED: self._questions("train", library), HELD_OUT: self._questions("test", library)}

    @cached_property
    def leakage(self) -> QueryLeakage:
        """Which of the questions that are kept from training it asks all the same, in the same words."""
        return query_leakage(self.questions[HELD_OUT].texts, self.questions[TRAINED].texts)

    @cached_property
    def chance(self) -> float:
        """The most frequent answer, said to all."""
        first = Counter(one[0] for one in self.questions[TRAINED].answers)
        return max(first.values()) / first.total()

    @cached_property
    def _texts(self) -> list[str]:
        """Every passage once."""
        return list(dict.fromkeys(one.text for corpus in self.parts.values() for one in corpus))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: place for place, text in enumerate(self._texts)}

    @property
    def _answers(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for corpus in self.parts.values():
            for one in corpus:
                if one.answers:
                    found.setdefault(self._places[one.text], []).extend(one.answers)
        return found

    def _questions(self, part: str, library: Library) -> Questions:
        corpus = self.parts[part]
        asked = corpus.select([row for row, one in enumerate(corpus) if one.answers])
        texts, answers = [str(one.question) for one in asked], [tuple(one.answers or ()) for one in asked]
        gold = np.array([self._places[one.text] for one in asked])
        shortest = [min(each, key=self._num_tokens) for each in answers]
        found = question_rows(
            texts,
            shortest,
            asked.ids,
            self.tokenizer,
            library,
            gold,
            max_length=int(_QUERY_SHARE * self.positions),
            answer_tokens=self.answer_tokens,
        )
        self._tell(part, len(corpus), found)
        kept = found.kept.tolist()
        right = [(shortest[row], *(one for one in answers[row] if one != shortest[row])) for row in kept]
        return Questions(found.rows, tuple(texts[row] for row in kept), tuple(right), gold[kept])

    def _num_tokens(self, answer: str) -> int:
        return len(self.tokenizer(answer, add_special_tokens=False).input_ids)

    def _tell(self, part: str, num: int, found: QuestionRows) -> None:
        if num > len(found.kept):
            current_display().note(
                f"{part}: {num - len(found.kept):,} of {num:,} questions have no answer of at most "
                f"{self.answer_tokens} tokens, and are not asked."
            )
        if found.rows.num_specials:
            current_display().note(f"{part}: {found.rows.num_specials:,} special tokens written in questions are text.")
        if found.num_cut:
            current_display().note(f"{part}: {found.num_cut:,} questions are longer than what is read, and were cut.")


def _tell_of(library: Library) -> None:
    if library.num_specials:
        current_display().note(f"{library.num_specials:,} special tokens written in passages are text.")
    if library.num_cut:
        current_display().note(
            f"{library.num_cut:,} of {len(library):,} passages are longer than what is read, and are cut."
        )


@lru_cache(maxsize=2)
def read_text(train: str, test: str, vocabulary_size: int, positions: int, answer_tokens: int) -> ReadText:
    """The questions of these files, read once in a process.

    Raises:
        UserError: A file cannot be read, holds no questions, or their answers do not stand in their passages.
    """
    task = load_task("retrieval.corpus", train=train, test=test or None, shape="span")
    parts = {"train": task.train, "dev": task.dev, "test": task.test}
    return ReadText(parts, vocabulary_size, positions, answer_tokens)
