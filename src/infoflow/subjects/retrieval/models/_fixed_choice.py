"""Candidates that do not depend on weights: inputs for a loss that is a function of the parameters alone."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from infoflow.foundation import UserError

from ._candidates import NULL, without_excluded
from ._library import Library
from ._reader import Candidates, RetrievalModel


@torch.no_grad()
def fixed_choice(
    model: RetrievalModel,
    input_ids: Int[Tensor, "query token"],
    attention_mask: Int[Tensor, "query token"] | None,
    negatives: int,
    gold: np.ndarray,
    exclude: Sequence[Sequence[int]],
    null_only: np.ndarray,
) -> Candidates:
    """The passage that answers each query, the best others by BM25, and the null passage.

    While a model trains, its own search finds changing passages, and the loss jumps. These candidates depend on the
    query alone, so the loss along a path of weights has a gradient everywhere. A source with its own scores scores them
    as usual; for `gold` and `random` all passages are equal.

    Args:
        model: Without a library (closed-book) only the null passage is read.
        input_ids: `[CLS] x [SEP]`, masked.
        attention_mask: 0 at padding.
        negatives: Number of passages in addition to the answering one.
        gold: int64 (query,), the passage with the answer; −1: none.
        exclude: Ids that each query must not read, even the answering passage.
        null_only: Bool (query,), whether the query reads only the null passage.

    Raises:
        UserError: `negatives` is below 1, or a model that reads passages has no library.
    """
    if negatives < 1:
        raise UserError(f"Fixed candidates need at least 1 passage in addition to the right one. Got {negatives}.")
    null = np.full((len(input_ids), 1), NULL)
    if model.source == "none" or null_only.all():
        return Candidates(ids=null, there=np.ones_like(null, dtype=bool), scores=np.zeros(null.shape))
    library = _library(model)
    special = library.vocabulary.is_special
    gold = without_excluded(gold, exclude)
    words = [row[~special[row]] for row in input_ids.cpu().numpy()]
    out = [[*own, *([right] if right != NULL else [])] for own, right in zip(exclude, gold.tolist(), strict=True)]
    others = library.by_words(words, negatives, out).ids
    ids = np.concatenate([gold[:, None], others], axis=1)
    there = (ids != NULL) & ~null_only[:, None]
    ids = np.where(there, ids, NULL)
    scores = np.where(there, _scores(model, library, input_ids, attention_mask, words, ids), 0.0)
    return Candidates(
        ids=np.concatenate([ids, null], axis=1),
        there=np.concatenate([there, np.ones_like(null, dtype=bool)], axis=1),
        scores=np.concatenate([scores, np.zeros(null.shape)], axis=1),
    )


def _scores(
    model: RetrievalModel,
    library: Library,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    words: list[np.ndarray],
    ids: np.ndarray,
) -> np.ndarray:
    """Scores of a source without trained scores, (query, passage); undefined at ids of −1."""
    if model.source == "bm25":
        return np.stack([library.lexical.scores(one.tolist())[row] for one, row in zip(words, ids, strict=True)])
    if model.source == "frozen":
        assert model.retriever is not None
        if library.dense is None:
            library.dense = library.embed(model.retriever.passages)
        vectors = model.retriever.queries(input_ids, attention_mask)
        found = library.dense.vectors.to(vectors.device)[torch.from_numpy(ids)]
        return (vectors[:, None] * found).sum(dim=-1).div(vectors.shape[-1] ** 0.5).cpu().numpy()
    return np.zeros(ids.shape)


def _library(model: RetrievalModel) -> Library:
    if model.passage_library is None:
        raise UserError(
            f"A model whose passages come from {model.source} needs a library. Got none.\n"
            "Set model.passage_library = Library(passages, tokenizer) before training or scoring."
        )
    return model.passage_library
