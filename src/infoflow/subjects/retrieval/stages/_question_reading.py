"""How a retrieval model reads questions: what it finds, and how that changes its answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.foundation import hash64
from infoflow.models import pad_rows
from infoflow.objectives import UNSUPERVISED
from infoflow.results import RETRIEVAL_SCORES

from ..measures._answers import reading_from
from ..models import (
    NULL,
    Candidates,
    Library,
    RetrievalModel,
    answer_scores,
    marginal_log_likelihood,
    question_blocks,
    retrieval_scores,
    score_row,
)
from ..objectives._retrieval_lm import RetrievalLM
from ._reading_matter import HELD_OUT, TRAINED, Questions, ReadText, spread

DEPTH = 20  # maximum number of ranked passages
SEARCHES = ("bm25", "frozen", "learned")  # passage sources that search
_BATCH = 128
NOT_LEAKED = "not leaked"
DOCUMENTS = ("none", "gold", "random", "own")
_CUTS = (1, 2, 5, 20)
_MOST = 600  # maximum number of questions of each part


class MaskedQuestions(NamedTuple):
    """Masked questions."""

    ids: Tensor  # [CLS] question [SEP]
    mask: Tensor  # 0 at padding
    labels: Tensor  # −100 where no answer is predicted
    gold: np.ndarray  # int64 (question,), the passage that answers each
    draws: np.ndarray  # int64 (question,), determines the random passage


class Read(NamedTuple):
    """A model's predictions for questions, on the CPU in float64."""

    log_prior: Tensor  # (question, candidate)
    logs: Tensor  # (question, candidate, target)
    targets: Tensor  # bool (question, target)
    there: Tensor  # bool (question, candidate)

    def take(self, questions: np.ndarray) -> "Read":
        return Read(*(one[torch.from_numpy(questions)] for one in self))


@final
@dataclass(frozen=True, eq=False)
class QuestionReading:
    """A model in evaluation mode, with its training objective."""

    model: RetrievalModel
    objective: RetrievalLM

    # -- retrieval ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def ranked(self, masked: MaskedQuestions, library: Library) -> np.ndarray:
        """The passages ranked for each question, best first."""
        if self.model.source == "bm25":
            return ranked_by_words(masked, library)
        assert self.model.retriever is not None
        vectors = torch.cat(
            [self.model.retriever.queries(masked.ids[rows], masked.mask[rows]) for rows in slices(masked)]
        )
        return library.by_vectors(vectors, min(DEPTH, len(library)), [()] * len(vectors)).ids

    def systems(self, masked: MaskedQuestions, library: Library, first: RetrievalModel | None) -> dict[str, np.ndarray]:
        """Rankings by the model's own search and by its controls: BM25, and the retriever before training."""
        found = {"own": self.ranked(masked, library)}
        if self.model.source != "bm25":
            found["bm25"] = ranked_by_words(masked, library)
        if first is not None and first.passage_library is not None:
            found["frozen"] = QuestionReading(first, self.objective).ranked(masked, first.passage_library)
        return found

    def choice(self, masked: MaskedQuestions, rows: slice) -> Candidates:
        """The candidates that each of these questions reads."""
        gold = masked.gold[rows]
        return self.model.choose(masked.ids[rows], masked.mask[rows], self.objective.k, gold, masked.draws[rows])

    def log_prior(self, ids: Tensor, mask: Tensor, choice: Candidates) -> Tensor:
        """log π of each candidate, (question, candidate), on the CPU in float64."""
        scores = self.model.logits(ids, mask, choice).double().cpu()
        return scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)

    # -- reading ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, masked: MaskedQuestions) -> Read:
        """Predict the answers with every candidate."""
        parts, width = [], int((masked.labels != UNSUPERVISED).sum(dim=1).max()) + self.model.writes
        for rows in slices(masked):
            ids, mask, labels = masked.ids[rows], masked.mask[rows], masked.labels[rows]
            choice = self.choice(masked, rows)
            prior = self.log_prior(ids, mask, choice)
            logs, targets = self.model.log_likelihoods(ids, mask, labels, choice)
            room = (0, max(width - targets.shape[1], 0))  # pads batches whose answers are all shorter than the longest
            logs, targets = (torch.nn.functional.pad(one, room) for one in (logs.double().cpu(), targets.cpu()))
            parts.append((prior, logs, targets, torch.from_numpy(choice.there)))
        return Read(*(torch.cat(one) for one in zip(*parts, strict=True)))

    def marginal(self, read: Read) -> np.ndarray:
        """log p(y|x) of each question."""
        parts = {"candidates": read.there, "tokens": read.targets}
        return marginal_log_likelihood(read.log_prior, read.logs, level=self.objective.level, **parts).numpy()

    def made(self, queries: str, read: Read, blocks: np.ndarray, words: int) -> Iterator[dict[str, Any]]:
        """Rows on how passages change answers; the baseline of a log-likelihood is uniform over `words` words."""
        likely = self.marginal(read)
        if self.model.source != "none":
            yield from priors(queries, read, blocks)
            sums = torch.where(read.targets[:, None], read.logs, 0.0).sum(dim=2)
            own = read.there[:, :-1].any(dim=1).numpy()
            gains = torch.where(read.there[:, :-1], sums[:, :-1] - sums[:, -1:], 0.0).sum(dim=1)
            mean = (gains / read.there[:, :-1].sum(dim=1).clamp_min(1)).numpy()
            yield score_row(queries, "utility", mean[own], blocks[own], 0.0)
            yield score_row(queries, "utility_marginal", (likely - sums[:, -1].numpy())[own], blocks[own], 0.0)
        yield score_row(queries, "log_likelihood", likely, blocks, unlikely(read, words))


def ranked_by_words(masked: MaskedQuestions, library: Library) -> np.ndarray:
    """The passages of each question ranked by BM25, best first."""
    words = library.words(masked.ids)
    return library.by_words(words, min(DEPTH, len(library)), [()] * len(words)).ids


def unlikely(read: Read, words: int) -> float:
    """Log-likelihood of an answer under the uniform distribution, in nats."""
    return -read.targets.sum(dim=1).double().mean().item() * float(np.log(words))


def priors(queries: str, read: Read, blocks: np.ndarray) -> Iterator[dict[str, Any]]:
    """Rows on the prior over candidates."""
    prior = read.log_prior.exp()
    num = read.there.sum(dim=1).double()
    entropy = torch.special.entr(prior).sum(dim=1).numpy()
    yield score_row(queries, "null_prior", prior[:, -1].numpy(), blocks, float((1 / num).mean()), scale="share")
    yield score_row(queries, "prior_entropy", entropy, blocks, float(num.log().mean()), scale="positive")


def alone(ids: np.ndarray) -> Candidates:
    """Candidates with one passage per question; −1 is the empty passage."""
    column = ids[:, None]
    return Candidates(ids=column, there=np.ones(column.shape, dtype=bool), scores=np.zeros(column.shape))


def without_passage(num: int) -> Candidates:
    """Candidates with only the empty passage, for `num` questions."""
    return alone(np.full(num, NULL))


def slices(masked: MaskedQuestions) -> Iterator[slice]:
    yield from (slice(start, min(start + _BATCH, len(masked.ids))) for start in range(0, len(masked.ids), _BATCH))


class _Questions(NamedTuple):
    """Questions in the form that a retrieval model reads."""

    masked: MaskedQuestions
    texts: list[str]
    answers: list[tuple[str, ...]]


@final
@dataclass(frozen=True, eq=False)
class TextScores:
    r"""Scores of one reader on real text.

    | system             | metric                                    | value                                  |
    |--------------------|-------------------------------------------|----------------------------------------|
    | none, gold, random | em, f1                                    | of the answers with that passage       |
    | own                | em, f1                                    | marginalised over retrieved passages   |
    | own                | utility, utility_marginal, log_likelihood | as for facts, see `ArmScores`          |
    | own, bm25, frozen  | hit, recall, mrr, collapse, nothing_found | of the passage that a question is about |

    Queries are "trained" and "held out", at most 600 of each. If training contains some held-out questions, the others
    are also reported as "not leaked". The number of masks reveals the number of answer tokens, and each mask is filled
    separately: \(\arg\max_w \sum_z \pi(z) p(w_j = w | z, x)\). The baseline of em and f1 gives the most frequent
    correct answer to every question.
    """

    model: RetrievalModel  # in evaluation mode, with an index built from its own weights
    objective: RetrievalLM
    text: ReadText
    first: RetrievalModel | None  # the model before training, if it has a learned retriever

    def table(self) -> pd.DataFrame:
        """All rows, without key columns."""
        with reading_from(self.model, self._library):
            parts = [frame for given, groups in self._parts() for frame in self._of(given, groups)]
        return RETRIEVAL_SCORES.conform(pd.concat(parts, ignore_index=True))

    def _parts(self) -> Iterator[tuple[_Questions, dict[str, np.ndarray]]]:
        """Trained and held-out questions, each with its reported groups (name → positions)."""
        for name in (TRAINED, HELD_OUT):
            questions = self.text.questions[name]
            rows = spread(len(questions.texts), _MOST)
            groups = {name: np.arange(len(rows))}
            others = np.flatnonzero(~np.isin(rows, self.text.leakage.leaked))
            if name == HELD_OUT and 0 < len(others) < len(rows):
                groups[NOT_LEAKED] = others
            yield self._questions(questions, rows), groups

    def _of(self, given: _Questions, groups: Mapping[str, np.ndarray]) -> Iterator[pd.DataFrame]:
        """Rows of all groups; every question is read once, even if it is in several groups."""
        documents = [one for one in DOCUMENTS if one != "own" or self.model.source != "none"]
        said = {document: self._said(given.masked, document) for document in documents}
        read = self._reading.read(given.masked)
        searches = self.model.source in SEARCHES
        found = self._reading.systems(given.masked, self._library, self.first) if searches else {}
        for name, places in groups.items():
            texts, answers = ([column[place] for place in places] for column in (given.texts, given.answers))
            for document in documents:
                own = [said[document][place] for place in places]
                yield answer_scores(own, answers, texts, system=document, queries=name)
            blocks, words = question_blocks(texts), self.text.vocabulary.size
            yield pd.DataFrame(list(self._reading.made(name, read.take(places), blocks, words)))
            if found:
                relevant = [[int(one)] for one in given.masked.gold[places]]
                own_found = {system: ranking[places] for system, ranking in found.items()}
                yield retrieval_scores(own_found, relevant, texts, len(self._library), _CUTS, name)

    @torch.no_grad()
    def _said(self, masked: MaskedQuestions, document: str) -> list[str]:
        said: list[str] = []
        for rows in slices(masked):
            ids, mask, labels = masked.ids[rows], masked.mask[rows], masked.labels[rows]
            choice, prior = self._read_with(masked, rows, document)
            words = self.model.word_log_probabilities(ids, mask, labels, choice).double().cpu()
            best = (prior[:, :, None, None] * words.exp()).sum(dim=1).argmax(dim=-1)  # (query, target)
            lengths = (labels != UNSUPERVISED).sum(dim=1).tolist()
            said += [
                self.text.tokenizer.decode(row[:num].tolist(), skip_special_tokens=True).strip()
                for row, num in zip(best, lengths, strict=True)
            ]
        return said

    def _read_with(self, masked: MaskedQuestions, rows: slice, document: str) -> tuple[Candidates, Tensor]:
        """The candidates of each question (one passage, or those that the model finds) and their weights."""
        if document == "own":
            choice = self._reading.choice(masked, rows)
            return choice, self._reading.log_prior(masked.ids[rows], masked.mask[rows], choice).exp()
        gold = masked.gold[rows]
        if document == "none":
            choice = without_passage(len(gold))
        else:
            choice = alone(gold if document == "gold" else self.model.drawn(masked.draws[rows], gold))
        return choice, torch.ones(choice.ids.shape, dtype=torch.float64)

    @cached_property
    def _reading(self) -> QuestionReading:
        return QuestionReading(self.model, self.objective)

    @cached_property
    def _library(self) -> Library:
        """The model's own library; a closed book has none and gets the passages of the text."""
        return self.model.passage_library or self.text.passage_library()

    def _questions(self, questions: Questions, rows: np.ndarray) -> _Questions:
        tokens = [questions.rows.row(int(row)) for row in rows]
        spans = [questions.rows.example(int(row)).labels["spans"][0] for row in rows]
        ids, mask = pad_rows(tokens, self.text.vocabulary.pad)
        labels = torch.full_like(ids, UNSUPERVISED)
        for row, (start, end) in enumerate(spans):
            labels[row, start:end] = ids[row, start:end]
            ids[row, start:end] = self.text.vocabulary.mask
        arrays = (one.to(self.model.device) for one in (ids, mask, labels))
        texts, answers = ([column[row] for row in rows] for column in (questions.texts, questions.answers))
        draws = np.array([hash64("own-candidates", 0, text) % (1 << 62) for text in texts])
        return _Questions(MaskedQuestions(*arrays, gold=questions.gold[rows], draws=draws), texts, answers)
