"""Weights of each question's candidates in a retrieval model: prior, likelihood and posterior."""

# Q question, C candidate, J token of the answer

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError, stream

from ..models import NULL, Candidates, RetrievalModel, document_posterior
from ._inputs import FactInputs


def candidate_passages(world: FactWorld, facts: Sequence[Fact], num: int, seed: int) -> np.ndarray:
    """Passages of each fact, int64 (fact, candidate): the one with the fact, others about the entity, then random ones.

    Raises:
        UserError: There are fewer than three candidates (a rank correlation needs three), or more than exist.
    """
    total = world.num_passages()
    if not 3 <= num <= total:
        raise UserError(f"candidates must lie between 3 and the number of passages, {total:,}. Got {num:,}.")
    rows = []
    for fact in facts:
        draw = stream("evidence-candidates", seed, fact.number)
        near = world.distractors(fact)
        first = [world.gold(fact), *draw.permutation(near)]
        others = np.setdiff1d(np.arange(total), first)
        chosen = [*first, *draw.choice(others, max(num - len(first), 0), replace=False)][:num]
        rows.append(draw.permutation(np.array(chosen, dtype=np.int64)))
    return np.array(rows)


def prior_scores(model: RetrievalModel | None, asked: FactInputs, ids: np.ndarray) -> np.ndarray:
    """The logit f(x, z) of each candidate, (question, candidate), with current weights; 0 without a retrieval model.

    All passages are then equally likely.

    Args:
        model: Its source of candidates provides the weights.
        asked: The questions with the empty document.
        ids: Passages, int64 (question, candidate).
    """
    if model is None:
        return np.zeros(ids.shape)
    rows, mask = _queries(asked, model.device)
    null = np.full((len(ids), 1), NULL)
    there = np.ones((len(ids), ids.shape[1] + 1), dtype=bool)
    with torch.no_grad():
        found = np.pad(_found_scores(model, rows, mask, ids), ((0, 0), (0, 1)))
        choice = Candidates(ids=np.concatenate([ids, null], axis=1), there=there, scores=found)
        return model.logits(rows, mask, choice)[:, :-1].double().cpu().numpy()


def posterior(scores: np.ndarray, log_likelihoods: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """ρ(z) of each candidate, (question, candidate), without the null passage, which has no evidence to attend to."""
    given = [torch.from_numpy(one) for one in (scores, log_likelihoods, tokens)]
    return document_posterior(given[0], given[1], tokens=given[2]).numpy()


def answer_logs(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """The log-probability of each token of the true answer at its mask, (question, token); 0 beyond its tokens."""
    places = torch.from_numpy(inputs.masks).to(logits.device)
    answers = torch.from_numpy(inputs.candidates[np.arange(len(inputs)), inputs.answers]).to(logits.device)
    rows = torch.arange(len(inputs), device=logits.device)[:, None]
    logs = logits[rows, places.clamp(min=0)].double().log_softmax(dim=-1)
    logs = logs.gather(2, answers.clamp(min=0)[:, :, None])[:, :, 0]
    return torch.where(places >= 0, logs, 0.0).cpu().numpy()


def _queries(asked: FactInputs, device: torch.device) -> tuple[Tensor, Tensor]:
    """`[CLS] x [SEP]` of each question, and its padding mask."""
    own = (asked.token_type_ids == 0) & asked.attention_mask.astype(bool)
    longest = int(own.sum(axis=1).max())
    mask = own[:, :longest]
    ids = np.where(mask, asked.input_ids[:, :longest], 0)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask.astype(np.int64)).to(device)


def _found_scores(model: RetrievalModel, rows: Tensor, mask: Tensor, ids: np.ndarray) -> np.ndarray:
    """The source's own untrained score of each candidate, else 0."""
    library = model.passage_library
    if model.source not in ("bm25", "frozen"):
        return np.zeros(ids.shape)
    if library is None:
        raise UserError("A model that retrieves passages needs its library. Set model.passage_library first.")
    if model.source == "bm25":
        special = library.vocabulary.is_special
        words = [row[~special[row]].tolist() for row in rows.cpu().numpy()]
        return np.array([library.lexical.scores(one)[row] for one, row in zip(words, ids, strict=True)], dtype=float)
    retriever = model.retriever
    assert retriever is not None
    queries = retriever.queries(rows, mask)
    distinct, places = np.unique(ids, return_inverse=True)
    vectors = library.vectors(retriever.passages, distinct.tolist())[places.reshape(ids.shape)]
    return ((queries[:, None] * vectors).sum(dim=-1) / queries.shape[-1] ** 0.5).double().cpu().numpy()
