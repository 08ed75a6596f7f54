"""One sentence of a corpus, with its annotation."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ._columns import NAMED_COLUMNS


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence. Fields that the corpus lacks are None (`tags`: absent).

    Per-word lists have one entry per word of `words`; `head` counts words from 0, with −1 for the root.
    """

    id: int  # row in the original corpus
    text: str
    document: int | None = None  # number of its document
    translation: str | None = None
    label: str | None = None  # of the whole sentence: its class, or the phenomenon of a minimal pair
    second: str | None = None  # for a pair of texts, the second one
    question: str | None = None  # question about the text
    choices: list[str] | None = None  # answers to the question, one of them right
    answers: list[str] | None = None  # right answers contained in the text; empty: there is none
    answer_starts: list[int] | None = None  # start character of each answer in the text
    references: list[str] | None = None  # further right targets in addition to `translation`
    bad: str | None = None  # version of `text` made unacceptable by a minimal change
    part: str | None = None  # `test` in a corpus with marked test sentences, else `train`
    words: list[str] | None = None
    word_starts: list[int] | None = None  # the character of `text` at which each word begins
    upos: list[str] | None = None  # Universal POS tags
    head: list[int] | None = None  # word index of the governor
    deprel: list[str] | None = None  # Universal Dependencies relation to the governor
    tags: dict[str, list[str]] = field(default_factory=dict)  # other per-word tags by column, such as `ccg`


def sentences_in(columns: dict[str, list]) -> Iterator[Sentence]:
    """The sentences of a batch of columns, with their ids."""
    named = [name for name in columns if name in NAMED_COLUMNS or name == "id"]
    tags = [name for name in columns if name not in named]
    for i in range(len(columns["id"])):
        yield Sentence(**{name: columns[name][i] for name in named}, tags={name: columns[name][i] for name in tags})
