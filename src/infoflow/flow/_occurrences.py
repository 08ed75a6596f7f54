"""Occurrences of tokens in a sample: their columns, their tags, and strata that keep rare ones."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from infoflow.corpus import NOT_A_WORD, Corpus, tag_columns
from infoflow.foundation import UserError, as_written


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Occurrences:
    """Data about each sampled token that need no model: columns of equal length, in sampling order."""

    sentence: np.ndarray  # int64, `Corpus.content_ids`
    row: np.ndarray  # int64, row of the encoded corpus
    position: np.ndarray  # int64, index among the row's tokens, special tokens included
    token: np.ndarray  # int64, input id as the model reads it (after corruption)
    label: np.ndarray  # int64, id to predict, −100 where nothing is predicted
    previous: np.ndarray  # int64, id of the preceding token, uncorrupted; −1 at the start or after a special token
    next: np.ndarray  # int64, id of the following token, uncorrupted; −1 at the end or before a special token
    word: np.ndarray  # int64, index of its word
    draw: np.ndarray  # int64, number of the pass over the corpus (training regime repeats with new noise)
    subword: np.ndarray  # int64, index of the token in its word: 0 = first
    subwords: np.ndarray  # int64, number of tokens of its word
    word_type: np.ndarray  # int64, hash of the word's token ids: equal words have equal numbers

    def __len__(self) -> int:
        return len(self.sentence)

    def take(self, index: np.ndarray) -> "Occurrences":
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})


NO_TAG = -1
_SHOWN = 20  # values of a tag in a message
_HOLES = {"_", None}
"""What treebanks and taggers write for words without a tag."""
_PARTS = {"ccg_left": "ccg", "ccg_right": "ccg"}
"""Columns with parts of another column's category: a part is missing if the category is; an empty part is a value."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tag:
    """One tag column of a sample."""

    codes: np.ndarray  # (n,) int64, index into `names`, −1 for words without a tag
    names: tuple[str, ...]

    def take(self, index: np.ndarray) -> "Tag":
        return replace(self, codes=self.codes[index])


def tagged_words(corpus: Corpus, tag: str, value: str, *, decoder: bool) -> list[np.ndarray]:
    """For each sentence, a mask of the words with that tag."""
    if decoder:
        raise UserError("--where counts tokens of one text, and this model reads two. Leave out --where.")
    tags = tag_columns(corpus)
    if tag not in tags:
        raise UserError(
            f"--where needs a tag of the corpus: {', '.join(tags) or f'{corpus.name} has none'}. Got {as_written(tag)}."
        )
    found = [np.array([one == value for one in words], dtype=bool) for words in corpus.column(tag)]
    if not any(one.any() for one in found):
        values = sorted({one for words in corpus.column(tag) for one in words if one is not None})
        raise UserError(
            f"No word of {corpus.name} has {tag}={value}. Values of {tag}: {', '.join(values[:_SHOWN])}"
            f"{', …' * (len(values) > _SHOWN)}."
        )
    return found


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


OUTSIDE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStrata:
    """Half-open bins of frequency rank: [edges[i], edges[i+1]), up to `per_bin` occurrences of each."""

    edges: tuple[int, ...]
    per_bin: int

    @classmethod
    def of_types(cls, num_types: int, per_type: int) -> "RankStrata":
        """The `num_types` most frequent token types, up to `per_type` occurrences of each."""
        return cls(edges=tuple(range(1, num_types + 2)), per_bin=per_type)

    @property
    def num(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def of(self, ranks: np.ndarray) -> np.ndarray:
        """The bin of each frequency rank (1 = most frequent; 0: unknown), or `OUTSIDE` if there is none."""
        return rank_bins(ranks, self.edges)


def rank_bins(ranks: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """The bin of each rank: i where edges[i] ≤ rank < edges[i+1], `OUTSIDE` elsewhere and at rank 0 (unknown)."""
    bins = np.searchsorted(np.asarray(edges), ranks, side="right") - 1
    return np.where((bins >= len(edges) - 1) | (ranks < 1), OUTSIDE, bins).astype(np.int64)


def first_of_each(strata: np.ndarray, size: int) -> np.ndarray:
    """Mask of the rows (in order) among the first `size` of their stratum; False outside."""
    order = np.argsort(strata, kind="stable")
    ordered = strata[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[order] = np.arange(len(strata)) - starts < size
    return chosen & (strata != OUTSIDE)
