"""Tags of words: their column, their names, and checks on them."""

import re
from collections.abc import Iterable, Sequence

from infoflow.corpus import WHOLE_COLUMNS, Corpus
from infoflow.foundation import UserError, as_written

NOT_READ = "[not-read]"
"""Prediction for a word without tokens (truncated or empty). It is never right."""
OUTSIDE = "O"
_ENTITY = re.compile(r"[BIES]-.+")
_NO_TAGS = WHOLE_COLUMNS | {"words", "head", "lemma"}


def tag_column(corpus: Corpus, named: str | None, labels: Sequence[str] = ()) -> str:
    """The tag column of a corpus: the named one, `tag`, `upos`, or the only one.

    If `labels` are known, the first column whose tags all occur in them.

    Raises:
        UserError: There is none, or the corpus has no words.
    """
    if "words" not in corpus.columns:
        raise UserError(
            f"Tags need words. {corpus.name} has no words, but {', '.join(sorted(corpus.columns))}.\n"
            "Read word<TAB>tag lines (Corpus.from_tagged), CoNLL-U, or a data set (with the columns words= and tags=)."
        )
    found = sorted(corpus.columns - _NO_TAGS, key=lambda column: (column != "tag", column != "upos", column))
    if labels:
        known = set(labels)
        found = [name for name in found if all(known.issuperset(tags) for tags in corpus.column(name))] or found
    if (named is not None and named not in found) or not found:
        raise UserError(
            f"{corpus.name} has no tags {as_written(named)}. Its tags: {', '.join(found) or 'none'}.\n"
            "Name one of them: tags=."
        )
    return named or found[0]


def check_tags(tags: Sequence[str]) -> None:
    """Raise a UserError for a tag that is empty or has white space: tags are written separated by blanks."""
    if spaced := [tag for tag in tags if tag.split() != [tag] or tag == NOT_READ]:
        raise UserError(f"A tag must not contain white space. Got {as_written(spaced[0])}. Rename it.")


def are_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: `O`, and `B-` or `I-` (or `E-`, `S-`) before a type."""
    tags = set(tags)
    return bool(tags - {OUTSIDE}) and all(_ENTITY.fullmatch(tag) for tag in tags - {OUTSIDE})


def tags_of(corpus: Corpus, column: str) -> Iterable[Sequence[str]]:
    """The tags of each sentence.

    Raises:
        UserError: The corpus has no such column.
    """
    corpus.require("words", column)
    return corpus.column(column)
