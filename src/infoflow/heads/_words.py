"""Words of a corpus: their annotation, and word-level attention from subword attention."""

# B sentence, H head, T token, W word

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.foundation import UserError


class Annotation:
    """Per-word columns of a corpus, read batch by batch, so that they are never in memory as a whole."""

    def __init__(self, corpus: Corpus, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._corpus = corpus
        self._order = np.argsort(corpus.content_ids)
        self._sorted = corpus.content_ids[self._order]

    @classmethod
    def of(cls, corpus: Corpus, names: Sequence[str]) -> "Annotation | None":
        """The columns `names`, or None if the corpus lacks one."""
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
        return self  # immutable, and the corpus is on disk


MERGES = ("mean", "first")


def word_attention(
    attention: Float[Tensor, "sentence head token token"], words: Int[Tensor, "sentence token"], merge: str = "mean"
) -> Float[Tensor, "sentence head word word"]:
    r"""Attention from word to word: summed over the key's subwords, then averaged over the query's.

    $$ a_{uv} = \frac{1}{|u|} \sum_{i \in u} \sum_{j \in v} a_{ij} $$

    Rows sum to 1 minus the attention on tokens outside words. With `merge="first"` only the query's first subword
    counts (the default of the authors' function; the paper used the mean).

    Args:
        attention: (batch, head, query, key) weights after softmax.
        words: (batch, token) index of each token's word, from 0; −1 for special tokens and padding, which are dropped.
        merge: `"mean"` or `"first"`.

    Returns:
        (batch, head, word, word); 0 for words without tokens.

    Raises:
        UserError: The merge is unknown.

    Source: [@clark2019], the authors' code.

    >>> weights = torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.0, 0.6], [0.1, 0.1, 0.8]])[None, None]
    >>> word_attention(weights, torch.tensor([[0, 0, 1]]))
    tensor([[[[0.4500, 0.5500],
              [0.2000, 0.8000]]]])
    """
    if merge not in MERGES:
        raise UserError(f'merge must be "mean" or "first", over the subwords of the query. Got {merge}.')
    member = membership(words).to(attention)
    # Rows of padding may hold NaN, and 0 · NaN is NaN.
    kept = attention.masked_fill((words < 0)[:, None, :, None], 0)
    queries = _first_only(member) if merge == "first" else member / member.sum(1, keepdim=True).clamp(min=1)
    return queries.mT.unsqueeze(1) @ (kept @ member.unsqueeze(1))


def membership(words: Int[Tensor, "sentence token"]) -> Bool[Tensor, "sentence token word"]:
    """Which token belongs to which word."""
    return words.unsqueeze(2) == torch.arange(max(int(words.max()) + 1, 1), device=words.device)


def _first_only(member: Float[Tensor, "sentence token word"]) -> Float[Tensor, "sentence token word"]:
    return member * (member.cumsum(1) == 1)
