"""BM25: passages that share a query's rare terms."""

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from infoflow.foundation import UserError, comparable, missing_extra, words_of

from ._found import Excluded, Found, best, check_search, nearest_few

WORD_TERMS = "words-3"  # change the name when terms change, so that an index of other terms is refused
"""Name of the terms of an index on disk: lower-cased words."""


def terms_of(texts: Iterable[str], tokenizer: Any = None) -> list[list[Hashable]]:
    """Terms of each text: the tokenizer's ids without special tokens, or lower-cased words (NFKC) without a tokenizer.

    Words include their combining marks. In scripts without spaces (Han, kana, Thai, Khmer, Tibetan, …) terms are
    overlapping character pairs, or a single isolated character.
    """
    if tokenizer is None:
        return [list(words_of(comparable(text).lower(), "pairs")) for text in texts]
    given = list(texts)
    if not given:
        return []
    return [list(ids) for ids in tokenizer(given, add_special_tokens=False, split_special_tokens=True).input_ids]


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """Number of passages, their length, and the document frequency of each term."""

    num_passages: int
    num_terms: int  # in all passages, counting repetitions
    holding: Counter[Hashable]

    @classmethod
    def of(cls, passages: Iterable[Sequence[Hashable]]) -> "TermStatistics":
        """Statistics of passages from a stream of their terms."""
        num = length = 0
        holding: Counter[Hashable] = Counter()
        for terms in passages:
            num, length = num + 1, length + len(terms)
            holding.update(set(terms))
        return cls(num, length, holding)

    @property
    def mean_length(self) -> float:
        return self.num_terms / self.num_passages

    def rarity(self, term: Hashable) -> float:
        r"""\(\ln (1 + (N - n + .5) / (n + .5))\) for a term in n of N passages."""
        holding = self.holding[term]
        return math.log(1 + (self.num_passages - holding + 0.5) / (holding + 0.5))


# BM25: passages that share a query's rare terms.
#
# $$ s(q, d) = \sum_{t \in q} \ln\Big(1 + \frac{N - n_t + .5}{n_t + .5}\Big) \, \frac{f_{td}}{f_{td} + k_1 (1 - b + b \,
# |d| / \overline{|d|})} $$
#
# A repeated query term counts each time; unknown terms count 0. This is the variant that bm25s calls `lucene`.
#
# Source: [@robertson2009].

Terms = Sequence[Sequence[Hashable]]
K1, B = 1.5, 0.75  # defaults of bm25s; Lucene has 1.2 and .75


def bm25_scores(queries: Terms, passages: Terms, k1: float = K1, b: float = B) -> np.ndarray:
    """Scores of every passage for every query: float64 (query, passage).

    Args:
        queries: Lists of terms (words or token ids).
        passages: Lists of terms.
        k1: How slowly repetition saturates, at least 0.
        b: Penalty on long passages, 0 to 1.

    Raises:
        UserError: No passage has a term, a parameter is out of range, or bm25s is not installed.
    """
    index = LexicalIndex(passages, k1=k1, b=b)
    return np.stack([index.scores(query) for query in queries]) if len(queries) else np.empty((0, len(passages)))


@final
class LexicalIndex:
    """BM25 over passages, whose ids are their positions."""

    def __init__(self, passages: Terms, k1: float = K1, b: float = B, statistics: TermStatistics | None = None) -> None:
        """
        Args:
            passages: Terms of each passage.
            k1: See `bm25_scores`.
            b: See `bm25_scores`.
            statistics: Statistics of the whole store if these passages are a shard of it; scores are then those of an
                index of the whole store.

        Raises:
            UserError: As in `bm25_scores`.
        """
        if not (k1 >= 0 and 0 <= b <= 1):
            raise UserError(f"k1 must be at least 0 and b lie in 0..1. Got {k1} and {b}.")
        self._vocabulary: dict[Hashable, int] = {}
        numbered = [[self._vocabulary.setdefault(term, len(self._vocabulary)) for term in one] for one in passages]
        if not self._vocabulary:
            raise UserError(
                f"A lexical index needs at least one term. Got {len(numbered)} passages without any.\n"
                "Use passages with text in them."
            )
        self._index = _library().BM25(k1=k1, b=b, method="lucene", dtype="float64", backend="numpy")
        # bm25s uses the keys of its vocabulary unchanged and needs every id in it.
        names = {str(id): id for id in self._vocabulary.values()}
        self._index.index((numbered, names), show_progress=False, create_empty_token=False)
        self._num = len(numbered)
        if statistics is not None:
            self._weigh(numbered, statistics, k1, b)

    def _weigh(self, numbered: list[list[int]], statistics: TermStatistics, k1: float, b: float) -> None:
        """Replace the scores by exactly those of an index of all passages."""
        stored, num_terms = self._index.scores, len(self._vocabulary)
        rarity = np.array([statistics.rarity(term) for term in self._vocabulary])
        lengths = np.array([len(one) for one in numbered])
        given = np.repeat(np.arange(self._num), lengths) * num_terms + np.concatenate(numbered).astype(np.int64)
        keys, counts = np.unique(given, return_counts=True)
        terms = np.repeat(np.arange(num_terms), np.diff(stored["indptr"]))
        places = stored["indices"].astype(np.int64)
        often = counts[np.searchsorted(keys, places * num_terms + terms)].astype(np.float64)
        norm = k1 * ((1 - b) + b * lengths[places] / statistics.mean_length)
        stored["data"] = rarity[terms] * (often / (norm + often))

    def __len__(self) -> int:
        return self._num

    def scores(self, query: Sequence[Hashable]) -> np.ndarray:
        """Score of every passage for one query's terms: float64 (passage,)."""
        known = [self._vocabulary[term] for term in query if term in self._vocabulary]
        return self._index.get_scores_from_ids(known) if known else np.zeros(self._num)

    def search(self, queries: Terms, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query that share a term with it.

        Args:
            queries: Terms of each query. A query without a known term finds nothing.
            k: Number of results.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: k is below 1, or the number of exclusions differs from the number of queries.
        """
        excluded = check_search(k, len(queries), exclude)
        found = [self._search(query, k, out) for query, out in zip(queries, excluded, strict=True)]
        return Found.stacked(found, k, np.float64)

    def _search(self, query: Sequence[Hashable], k: int, excluded: set[int]) -> tuple[np.ndarray, np.ndarray]:
        scores = self.scores(query)
        scores[scores <= 0] = -np.inf  # the passage shares no term with the query
        places = nearest_few(scores, k + len(excluded))
        return best(places, scores[places], k, excluded)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> list[str]:
        """Write the index into a folder and return the names of its files; `read` loads them."""
        self._index.save(str(folder), show_progress=False)
        terms = sorted(self._vocabulary, key=self._vocabulary.__getitem__)
        kinds = {type(term) for term in terms}
        assert kinds <= {str} or kinds <= {int}, "terms on disk are words or token ids"
        (folder / _TERMS).write_text(json.dumps([self._num, terms]), encoding="utf-8")
        return sorted(path.name for path in folder.iterdir())

    @classmethod
    def read(cls, folder: Path) -> "LexicalIndex":
        """The index that `write` saved, with memory-mapped arrays; the caller must have checked the files."""
        index = object.__new__(cls)
        index._num, terms = json.loads((folder / _TERMS).read_text(encoding="utf-8"))
        index._vocabulary = {term: id for id, term in enumerate(terms)}
        index._index = _library().BM25.load(str(folder), mmap=True, show_progress=False)
        return index


_TERMS = "terms.json"


def require_lexical() -> None:
    """Raise a UserError if bm25s is not installed."""
    _library()


def _library() -> Any:
    try:
        import bm25s  # pyright: ignore[reportMissingImports]  # the extra `retrieval`
    except ImportError:
        raise missing_extra("A lexical index", "bm25s", "retrieval") from None
    return bm25s
