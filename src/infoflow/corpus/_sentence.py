"""One sentence of a corpus, with whatever annotation the corpus has."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence. What a corpus does not hold is None (`tags`: absent).

    Per-word lists have one entry per word of `words`; `head` counts words from 0, with −1 for the root.
    """

    id: int  # row in the original corpus
    text: str
    translation: str | None = None
    words: list[str] | None = None
    upos: list[str] | None = None  # Universal POS tags
    head: list[int] | None = None  # word index of the governor
    deprel: list[str] | None = None  # Universal Dependencies relation to the governor
    tags: dict[str, list[str]] = field(default_factory=dict)  # other per-word tags by column, such as `ccg`
