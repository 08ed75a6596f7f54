"""What a probe predicts: labels of spans of a sentence's words; the parts for training and scoring."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from infoflow.corpus import Corpus, Sentence, running_text
from infoflow.foundation import UserError, as_written, stream

Unit = Literal["token", "span", "pair", "sentence"]
"""What carries the label: a word, a span of words, a pair of spans, or a whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examples:
    """Labelled spans of one corpus. A word is a span of length one, a sentence the span of all its words."""

    sentence: Int[np.ndarray, " example"]  # row of the corpus
    first: Int[np.ndarray, "example 2"]
    """Words [start, end) of the span; for a pair, of the first span: the dependent, or the later mention."""
    second: Int[np.ndarray, "example 2"] | None  # for a pair, the second span: the head, or the antecedent
    label: Int[np.ndarray, " example"]  # index into `ProbeTask.names`

    def __len__(self) -> int:
        return len(self.sentence)

    @property
    def spans(self) -> list[Int[np.ndarray, "example 2"]]:
        """The first spans, and the second ones if there are any."""
        return [self.first] if self.second is None else [self.first, self.second]

    def take(self, index: np.ndarray) -> "Examples":
        """The examples at these indices or under this mask."""
        second = None if self.second is None else self.second[index]
        return Examples(sentence=self.sentence[index], first=self.first[index], second=second, label=self.label[index])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Sentences with their examples."""

    corpus: Corpus
    examples: Examples

    def take(self, index: np.ndarray) -> "Part":
        return Part(corpus=self.corpus, examples=self.examples.take(index))


PARTS = ("train", "dev", "test")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeTask:
    """A task: the same labels over three parts that share no sentence."""

    name: str
    unit: Unit
    names: tuple[str, ...]
    """Label names, in order of first occurrence in the training part; all K outputs exist from the start."""
    train: Part
    dev: Part
    test: Part
    ignored: tuple[str, ...] = ()  # labels that micro-F1 leaves out, such as "no_relation"
    left_out: Mapping[str, int] = field(default_factory=dict)  # number of examples left out, by reason


Span = tuple[int, int]  # words [start, end)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Words with the white space between them."""

    words: tuple[str, ...]
    spaces: tuple[str, ...]  # one fewer than the words

    @property
    def text(self) -> str:
        return "".join(part for pair in zip(self.words, (*self.spaces, ""), strict=True) for part in pair)

    @property
    def starts(self) -> list[int]:
        """The character at which each word begins."""
        lengths = [len(word) + len(space) for word, space in zip(self.words, self.spaces, strict=False)]
        return [0, *accumulate(lengths)][: len(self.words)]

    def splits(self, place: int) -> bool:
        """Whether a written word continues after the word at `place`, as `do` in `don't` does."""
        if not 0 <= place < len(self.spaces) or self.spaces[place]:
            return False
        pair = self.words[place : place + 2]
        return all(map(is_word, pair)) and running_text(pair)[0] != "".join(pair)


def is_word(text: str) -> bool:
    """Whether the text has a letter or digit."""
    return any(letter.isalnum() for letter in text)


@dataclass(frozen=True, kw_only=True)
class QuestionedSentence:
    """A sentence of a corpus, its words, and a number derived from its text and the task's seed."""

    sentence: Sentence
    words: list[str]  # the corpus's words if it has any, else white-space words
    number: int
    corpus: str  # the corpus's name, for messages

    @property
    def whole(self) -> Span:
        return 0, len(self.words)

    @cached_property
    def written(self) -> "Written":
        """The words as they appear in the text; the parts of a contraction share its characters."""
        text, starts = self.sentence.text, self.sentence.word_starts
        if starts is None:
            return Written(words=tuple(self.words), spaces=(" ",) * (len(self.words) - 1))
        parts = [text[start:end] for start, end in pairwise([*starts, len(text)])]
        words = tuple(part.rstrip() for part in parts)
        return Written(words=words, spaces=tuple(part[len(w) :] for part, w in zip(parts[:-1], words, strict=False)))

    def tags(self, column: str) -> list[Any]:
        """A column with one entry for each word."""
        found = getattr(self.sentence, column, None) if column not in self.sentence.tags else self.sentence.tags[column]
        if found is None or len(found) != len(self.words):
            raise UserError(
                f"The column {column} of {self.corpus} must have one entry for each word. The sentence "
                f"{as_written(' '.join(self.words)[:80])} has {len(self.words)} words and "
                f"{0 if found is None else len(found)} entries.\nCorrect the sentence, or leave it out."
            )
        return list(found)

    def heads(self) -> list[int]:
        """The governor of each word, −1 for a root."""
        heads = self.tags("head")
        for start in range(len(heads)):
            word, steps = start, 0
            while word != -1 and steps <= len(heads):
                word = heads[word] if -1 <= heads[word] < len(heads) else len(heads)
                steps = len(heads) + 1 if word == len(heads) else steps + 1
            if word != -1:
                raise UserError(
                    f"The heads of a sentence must be a tree. In {self.corpus}, those of word {start + 1} of "
                    f"{as_written(' '.join(self.words)[:80])} never reach a root.\nCorrect the heads, or leave it out."
                )
        return heads

    def draw(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers that depend only on the seed, the sentence's text and `purpose`."""
        return stream("probe-task", self.number, *purpose)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeQuestion:
    """A label of a span or of a pair of spans; for tasks that change sentences, also the changed sentence."""

    first: Span
    label: str
    second: Span | None = None
    written: Written | None = None


Ask = Callable[[QuestionedSentence, Counter[str]], Iterable[ProbeQuestion]]
"""The examples of a sentence; left-out ones are counted, by reason."""
Begin = Callable[[Callable[[], Iterator[QuestionedSentence]]], Ask]
"""Reads the training sentences if the task depends on them (frequent words, bins), and returns its `Ask`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of task."""

    unit: Unit
    about: str  # what the task predicts, in one line
    needs: tuple[str, ...] = ()  # columns that a corpus must have
    either: tuple[str, ...] = ()  # columns of which a corpus must have at least one
    begin: Begin
    changes: bool = False  # whether it changes some sentences, so that its parts need their own corpus

    def missing(self, columns: set[str]) -> str | None:
        """What a corpus with these columns lacks for the task; None if it has everything."""
        if absent := [name for name in self.needs if name not in columns]:
            return f"the column {' and '.join(absent)}"
        if self.either and not columns & set(self.either):
            return f"one of the columns {', '.join(self.either)}"
        return None


def always(ask: Ask) -> Begin:
    """A task that does not depend on the training sentences."""
    return lambda _: ask


def bins(values: Sequence[int], most: int) -> list[int]:
    """Lower bounds of at most `most` bins with about equal numbers of `values`; the first bound is the smallest."""
    quantiles = np.quantile(values, np.linspace(0, 1, most + 1)[:-1], method="inverted_cdf")
    return sorted({int(bound) for bound in quantiles})


def bin_name(value: int, bounds: Sequence[int]) -> str:
    """The name of a value's bin: `7–9`, or `14+` for the last; values below the first bound belong to the first bin."""
    place = max(int(np.searchsorted(bounds, value, side="right")) - 1, 0)
    if place == len(bounds) - 1:
        return f"{bounds[place]}+"
    last = bounds[place + 1] - 1
    return f"{bounds[place]}" if last == bounds[place] else f"{bounds[place]}–{last}"
