"""What a task asks of a sentence: spans of its words and the label of each."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.corpus import Sentence
from infoflow.foundation import UserError, as_written, stream

from ._examples import Unit

Span = tuple[int, int]
"""Words [start, end)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedSentence:
    """A sentence of a corpus, its words, and a number that its text and the seed of the task decide."""

    sentence: Sentence
    words: list[str]
    """Those of the corpus where it has words, else white-space words."""
    number: int
    corpus: str
    """The corpus's name, for messages."""

    @property
    def whole(self) -> Span:
        return 0, len(self.words)

    def tags(self, column: str) -> list[Any]:
        """A column with one entry for each word.

        Raises:
            UserError: It has fewer or more entries than the sentence has words.
        """
        found = getattr(self.sentence, column, None) if column not in self.sentence.tags else self.sentence.tags[column]
        if found is None or len(found) != len(self.words):
            raise UserError(
                f"The column {column} of {self.corpus} must have one entry for each word. The sentence "
                f"{as_written(' '.join(self.words)[:80])} has {len(self.words)} words and "
                f"{0 if found is None else len(found)} entries.\nCorrect the sentence, or leave it out."
            )
        return list(found)

    def heads(self) -> list[int]:
        """The governor of each word, −1 of a root.

        Raises:
            UserError: A head lies outside the sentence, or heads go round in a circle.
        """
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
        """Random numbers that depend on the seed, the sentence's text and `purpose` alone."""
        return stream("probe-task", self.number, *purpose)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeQuestion:
    """A label of a span, or of a pair of spans; of a changed sentence also its new words."""

    first: Span
    label: str
    second: Span | None = None
    words: Sequence[str] | None = None


Ask = Callable[[AskedSentence, Counter[str]], Iterable[ProbeQuestion]]
"""The questions of a sentence; what is not asked is counted, by reason."""
Begin = Callable[[Callable[[], Iterator[AskedSentence]]], Ask]
"""Reads the training sentences where the task depends on them (frequent words, bins), and returns how it asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of task."""

    unit: Unit
    about: str
    """What is asked, in a line."""
    needs: tuple[str, ...] = ()
    """Columns that a corpus must have."""
    either: tuple[str, ...] = ()
    """Columns of which it must have one."""
    begin: Begin
    changes: bool = False
    """Whether it asks about sentences of which some are changed: its parts carry a corpus of their own."""

    def missing(self, columns: set[str]) -> str | None:
        """What a corpus with these columns lacks, in words; None where it has all."""
        if absent := [name for name in self.needs if name not in columns]:
            return f"the column {' and '.join(absent)}"
        if self.either and not columns & set(self.either):
            return f"one of the columns {', '.join(self.either)}"
        return None


def always(ask: Ask) -> Begin:
    """A task that does not depend on the training sentences."""
    return lambda _: ask


def bins(values: Sequence[int], most: int) -> list[int]:
    """Lower bounds of at most so many bins that hold about equally many of `values`, the first bound the smallest."""
    quantiles = np.quantile(values, np.linspace(0, 1, most + 1)[:-1], method="inverted_cdf")
    return sorted({int(bound) for bound in quantiles})


def bin_name(value: int, bounds: Sequence[int]) -> str:
    """The bin of a value: `7–9`, the last one `14+`; what lies below the first is of the first."""
    place = max(int(np.searchsorted(bounds, value, side="right")) - 1, 0)
    if place == len(bounds) - 1:
        return f"{bounds[place]}+"
    last = bounds[place + 1] - 1
    return f"{bounds[place]}" if last == bounds[place] else f"{bounds[place]}–{last}"
