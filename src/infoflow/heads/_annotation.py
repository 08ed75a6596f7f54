"""The annotation of sentences that a batch holds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from infoflow.corpus import Corpus


class Annotation:
    """Per-word columns of a corpus, read batch by batch, so that they never lie in memory as a whole."""

    def __init__(self, corpus: Corpus, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._corpus = corpus
        self._order = np.argsort(corpus.content_ids)
        self._sorted = corpus.content_ids[self._order]

    @classmethod
    def of(cls, corpus: Corpus, names: Sequence[str]) -> "Annotation | None":
        """The columns `names`, or None where the corpus lacks one."""
        return cls(corpus, names) if set(names) <= corpus.columns else None

    def rows(self, sentence_ids: np.ndarray) -> list[tuple[Any, ...]]:
        """The columns of each sentence, in the order of `names`."""
        rows = self._order[np.searchsorted(self._sorted, sentence_ids)]
        part = self._corpus.select(rows)
        return list(zip(*(part.column(name) for name in self.names), strict=True))

    def values(self, name: str) -> list[str]:
        """All values of a column, sorted."""
        return sorted({value for sentence in self._corpus.column(name) for value in sentence})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Annotation":
        return self  # nothing in it changes, and the corpus lies on disk
