"""Questions as one retrieval model reads them: what it finds for them, and what that adds to their answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, Scale
from infoflow.objectives import UNSUPERVISED, RetrievalLM
from infoflow.results import ratio_estimate
from infoflow.retrieval import NULL, Candidates, Library, RetrievalModel, marginal_log_likelihood

DEPTH = 20
"""Passages of a ranking, at most."""
SEARCHES = ("bm25", "frozen", "learned")
"""Sources that search."""
_BATCH = 128


class Asked(NamedTuple):
    """Masked questions."""

    ids: Tensor  # [CLS] question [SEP]
    mask: Tensor  # 0 at padding
    labels: Tensor  # −100 where nothing is asked
    gold: np.ndarray  # int64 (question,), the passage that answers each
    draws: np.ndarray  # int64 (question,), from which a random passage follows


class Read(NamedTuple):
    """What a model made of questions, on the CPU in float64."""

    log_prior: Tensor  # (question, candidate)
    logs: Tensor  # (question, candidate, target)
    targets: Tensor  # bool (question, target)
    there: Tensor  # bool (question, candidate)

    def take(self, questions: np.ndarray) -> "Read":
        """Some of the questions."""
        return Read(*(one[torch.from_numpy(questions)] for one in self))


@final
@dataclass(frozen=True, eq=False)
class QuestionReading:
    """A model in evaluation mode, and how it was trained."""

    model: RetrievalModel
    objective: RetrievalLM

    # -- what is found ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def ranked(self, asked: Asked, library: Library) -> np.ndarray:
        """The passages of each question, best first."""
        if self.model.source == "bm25":
            return ranked_by_words(asked, library)
        assert self.model.retriever is not None
        vectors = torch.cat([self.model.retriever.queries(asked.ids[rows], asked.mask[rows]) for rows in slices(asked)])
        return library.by_vectors(vectors, min(DEPTH, len(library)), [()] * len(vectors)).ids

    def choice(self, asked: Asked, rows: slice) -> Candidates:
        """What each of these questions reads."""
        gold = asked.gold[rows]
        none, k = np.zeros(len(gold), dtype=bool), self.objective.k
        excluded: list[tuple[int, ...]] = [()] * len(gold)
        return self.model.choose(asked.ids[rows], asked.mask[rows], k, gold, asked.draws[rows], excluded, none)

    def log_prior(self, ids: Tensor, mask: Tensor, choice: Candidates) -> Tensor:
        """log π of each candidate, (question, candidate), on the CPU in float64."""
        scores = self.model.logits(ids, mask, choice).double().cpu()
        return scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)

    # -- what is made of it -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, asked: Asked) -> Read:
        """Answers with every candidate."""
        parts, width = [], int((asked.labels != UNSUPERVISED).sum(dim=1).max()) + self.model.writes
        for rows in slices(asked):
            ids, mask, labels = asked.ids[rows], asked.mask[rows], asked.labels[rows]
            choice = self.choice(asked, rows)
            prior = self.log_prior(ids, mask, choice)
            logs, targets = self.model.log_likelihoods(ids, mask, labels, choice)
            room = (0, max(width - targets.shape[1], 0))  # where no answer of these is the longest
            logs, targets = (torch.nn.functional.pad(one, room) for one in (logs.double().cpu(), targets.cpu()))
            parts.append((prior, logs, targets, torch.from_numpy(choice.there)))
        return Read(*(torch.cat(one) for one in zip(*parts, strict=True)))

    def marginal(self, read: Read) -> np.ndarray:
        """log p(y|x) of each question."""
        parts = {"candidates": read.there, "tokens": read.targets}
        return marginal_log_likelihood(read.log_prior, read.logs, level=self.objective.level, **parts).numpy()

    def made(self, queries: str, read: Read, blocks: np.ndarray, words: int) -> Iterator[dict[str, Any]]:
        """Rows on what passages add to answers.

        Args:
            queries: What the questions are called.
            read: What `read` made of them.
            blocks: The bootstrap block of each.
            words: Of the vocabulary: a log-likelihood is told beside that of words that are all alike.
        """
        likely = self.marginal(read)
        if self.model.source != "none":
            yield from priors(queries, read, blocks)
            sums = torch.where(read.targets[:, None], read.logs, 0.0).sum(dim=2)
            own = read.there[:, :-1].any(dim=1).numpy()
            gains = torch.where(read.there[:, :-1], sums[:, :-1] - sums[:, -1:], 0.0).sum(dim=1)
            mean = (gains / read.there[:, :-1].sum(dim=1).clamp_min(1)).numpy()
            yield own_row(queries, "utility", mean[own], blocks[own], 0.0)
            yield own_row(queries, "utility_marginal", (likely - sums[:, -1].numpy())[own], blocks[own], 0.0)
        yield own_row(queries, "log_likelihood", likely, blocks, unlikely(read, words))


def ranked_by_words(asked: Asked, library: Library) -> np.ndarray:
    """The passages of each question by BM25, best first."""
    special = library.vocabulary.is_special
    words = [row[~special[row]] for row in asked.ids.cpu().numpy()]
    return library.by_words(words, min(DEPTH, len(library)), [()] * len(words)).ids


def unlikely(read: Read, words: int) -> float:
    """Log-likelihood of an answer if all words were alike, in nats."""
    return -read.targets.sum(dim=1).double().mean().item() * float(np.log(words))


def priors(queries: str, read: Read, blocks: np.ndarray) -> Iterator[dict[str, Any]]:
    """Rows on the prior over candidates."""
    prior = read.log_prior.exp()
    num = read.there.sum(dim=1).double()
    entropy = torch.special.entr(prior).sum(dim=1).numpy()
    yield own_row(queries, "null_prior", prior[:, -1].numpy(), blocks, float((1 / num).mean()), scale="share")
    yield own_row(queries, "prior_entropy", entropy, blocks, float(num.log().mean()), scale="positive")


def alone(ids: np.ndarray) -> Candidates:
    """One passage for each question, −1 for the empty one."""
    column = ids[:, None]
    return Candidates(ids=column, there=np.ones(column.shape, dtype=bool), scores=np.zeros(column.shape))


def without_passage(num: int) -> Candidates:
    """The empty passage for so many questions."""
    return alone(np.full(num, NULL))


def slices(asked: Asked) -> Iterator[slice]:
    """The questions in parts of at most 128."""
    yield from (slice(start, min(start + _BATCH, len(asked.ids))) for start in range(0, len(asked.ids), _BATCH))


def own_row(
    queries: str,
    metric: str,
    values: np.ndarray,
    blocks: np.ndarray,
    baseline: float,
    k: int = 0,
    scale: Scale = "any",
) -> dict[str, Any]:
    """One number about what the model does itself."""
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(float)
    found = ratio_estimate(np.bincount(blocks, values, NUM_BLOCKS), counts, baseline, scale=scale)
    return {"system": "own", "queries": queries, "metric": metric, "k": k, **found}
