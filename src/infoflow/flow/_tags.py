"""Tags of sampled words: any per-word column of the corpus, as codes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from infoflow.corpus import NOT_A_WORD, WHOLE_COLUMNS, Corpus

from ._sample_columns import Occurrences

NO_TAG = -1
_HOLES = {"_", None}
"""What treebanks and taggers write for words without a tag."""
_NOT_TAGS = WHOLE_COLUMNS | {"id", "words", "head", "lemma"}
_PARTS = {"ccg_left": "ccg", "ccg_right": "ccg"}
"""A part of a category is a hole if the category is; an empty part is a separate value."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tag:
    """One tag column of a sample."""

    codes: np.ndarray  # (n,) int64, index into `names`, −1 for words without a tag
    names: tuple[str, ...]

    def take(self, index: np.ndarray) -> "Tag":
        return replace(self, codes=self.codes[index])


def tag_columns(corpus: Corpus) -> list[str]:
    """The corpus's per-word columns that hold tags."""
    return sorted(corpus.columns - _NOT_TAGS) if "words" in corpus.columns else []


def read_tags(corpus: Corpus, occurrences: Occurrences) -> dict[str, Tag]:
    """The tags of each occurrence's word."""
    columns = tag_columns(corpus)
    if not columns or len(occurrences) == 0:
        return {}
    rows, of_row = np.unique(occurrences.row, return_inverse=True)
    part = corpus.select(rows)
    return {name: _tag(part.column(name), part.column(_PARTS.get(name, name)), of_row, occurrences) for name in columns}


def _tag(column: Iterable[list[str]], whole: Iterable[list[str]], of_row: np.ndarray, occurrences: Occurrences) -> Tag:
    flat, starts = [], [0]
    for tags, wholes in zip(column, whole, strict=True):
        flat += [
            None if whole_tag in _HOLES or tag in _HOLES else tag for tag, whole_tag in zip(tags, wholes, strict=True)
        ]
        starts.append(len(flat))
    names = tuple(sorted({tag for tag in flat if tag is not None}))
    code = {name: index for index, name in enumerate(names)} | {None: NO_TAG}
    codes = np.array([code[tag] for tag in flat] + [NO_TAG], dtype=np.int64)
    known = occurrences.word != NOT_A_WORD
    place = np.where(known, np.asarray(starts)[of_row] + occurrences.word, len(flat))
    return Tag(codes=codes[place], names=names)
