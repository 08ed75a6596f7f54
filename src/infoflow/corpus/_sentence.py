"""One sentence of a corpus, with whatever annotation the corpus has."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ._columns import NAMED_COLUMNS


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence. What a corpus does not hold is None (`tags`: absent).

    Per-word lists have one entry per word of `words`; `head` counts words from 0, with −1 for the root.
    """

    id: int  # row in the original corpus
    text: str
    document: int | None = None  # number of the document that it is of
    translation: str | None = None
    label: str | None = None  # of the whole sentence: its class, or the phenomenon of a minimal pair
    second: str | None = None  # of a pair of texts, the other one
    question: str | None = None  # what is asked about the text
    choices: list[str] | None = None  # answers to the question, one of them right
    answers: list[str] | None = None  # right answers that stand in the text; empty: it holds none
    answer_starts: list[int] | None = None  # where in the text each of them begins, in characters
    references: list[str] | None = None  # what else than `translation` would be right to write
    bad: str | None = None  # what `text` becomes where a minimal change makes it unacceptable
    part: str | None = None  # `test` in a corpus that says which sentences are to be tested on, else `train`
    words: list[str] | None = None
    upos: list[str] | None = None  # Universal POS tags
    head: list[int] | None = None  # word index of the governor
    deprel: list[str] | None = None  # Universal Dependencies relation to the governor
    tags: dict[str, list[str]] = field(default_factory=dict)  # other per-word tags by column, such as `ccg`


def sentences_in(columns: dict[str, list]) -> Iterator[Sentence]:
    """The sentences of a batch of columns, ids among them."""
    named = [name for name in columns if name in NAMED_COLUMNS or name == "id"]
    tags = [name for name in columns if name not in named]
    for i in range(len(columns["id"])):
        yield Sentence(**{name: columns[name][i] for name in named}, tags={name: columns[name][i] for name in tags})
