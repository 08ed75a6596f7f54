"""What a reader of real text finds and answers: rows of `retrieval_scores`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.foundation import hash64
from infoflow.objectives import UNSUPERVISED, RetrievalLM
from infoflow.retrieval import (
    NULL,
    RETRIEVAL_SCORES,
    Candidates,
    Library,
    RetrievalModel,
    answer_scores,
    marginal_log_likelihood,
    question_blocks,
    retrieval_scores,
)

from ._arm_scores import own_row
from ._read_text import HELD_OUT, TRAINED, Questions, ReadText
from ._training_accuracy import spread

DOCUMENTS = ("none", "gold", "random", "own")
_BATCH, _DEPTH = 64, 20
_CUTS = (1, 2, 5, 20)
_MOST = 600  # questions of a part
_SEARCHES = ("bm25", "frozen", "learned")


class _Asked(NamedTuple):
    """Some questions as a retrieval model reads them."""

    ids: Tensor  # [CLS] question [MASK] … [SEP]
    mask: Tensor
    labels: Tensor
    gold: np.ndarray
    texts: list[str]
    answers: list[tuple[str, ...]]


@final
@dataclass(frozen=True, eq=False)
class TextScores:
    r"""One reader as it is; `rows` are what is known of it.

    | system             | metric                                    | value                                  |
    |--------------------|-------------------------------------------|----------------------------------------|
    | none, gold, random | em, f1                                    | of what is answered with that passage  |
    | own                | em, f1                                    | with all that is found, summed out     |
    | own                | utility, utility_marginal, log_likelihood | as of facts, see `ArmScores`           |
    | own, bm25, frozen  | hit, recall, mrr, collapse                | of the passage that was asked about    |

    Queries are "trained" and "held out", at most 600 of each. Masks tell how many tokens an answer has, and each is
    filled by itself: \(\arg\max_w \sum_z \pi(z) p(w_j = w | z, x)\). The baseline of em and f1 is the most
    frequent right answer, said to all.
    """

    model: RetrievalModel  # in evaluation mode, with an index of its own weights
    objective: RetrievalLM
    text: ReadText
    first: RetrievalModel | None  # as it began, where it has a learned retriever

    def table(self) -> pd.DataFrame:
        """All rows, without key columns."""
        had = self.model.passage_library
        self.model.passage_library = self._library
        try:
            parts = [frame for name in (TRAINED, HELD_OUT) for frame in self._of(name)]
        finally:
            self.model.passage_library = had
        return RETRIEVAL_SCORES.conform(pd.concat(parts, ignore_index=True))

    def _of(self, name: str) -> Iterator[pd.DataFrame]:
        asked = self._asked(self.text.questions[name])
        for document in DOCUMENTS:
            if document == "own" and self.model.source == "none":
                continue
            said = self._said(asked, document)
            yield answer_scores(said, asked.answers, asked.texts, system=document, queries=name)
        yield pd.DataFrame(list(self._likely(asked, name)))
        if self.model.source in _SEARCHES:
            relevant = [[int(one)] for one in asked.gold]
            found = self._found(asked)
            yield retrieval_scores(found, relevant, asked.texts, len(self._library), _CUTS, name)

    # -- answers ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _said(self, asked: _Asked, document: str) -> list[str]:
        """What is answered with a document."""
        said: list[str] = []
        for rows in _slices(len(asked.texts)):
            ids, mask, labels = asked.ids[rows], asked.mask[rows], asked.labels[rows]
            choice = self._choice(asked, rows, document)
            prior = self._log_prior(ids, mask, choice).exp()
            words = self.model.word_log_probabilities(ids, mask, labels, choice).double().cpu()
            best = (prior[:, :, None, None] * words.exp()).sum(dim=1).argmax(dim=-1)  # (query, target)
            lengths = (labels != UNSUPERVISED).sum(dim=1).tolist()
            said += [
                self.text.tokenizer.decode(row[:num].tolist(), skip_special_tokens=True).strip()
                for row, num in zip(best, lengths, strict=True)
            ]
        return said

    def _likely(self, asked: _Asked, name: str) -> Iterator[dict[str, Any]]:
        """What is found adds to the answer's likelihood."""
        blocks = question_blocks(asked.texts)
        logs, priors, there, targets = self._read(asked)
        likely = marginal_log_likelihood(
            priors, logs, level=self.objective.level, candidates=there, tokens=targets
        ).numpy()
        unlikely = -targets.sum(dim=1).double().mean().item() * float(np.log(self.text.vocabulary.size))
        yield own_row(name, "log_likelihood", likely, blocks, unlikely)
        if self.model.source == "none":
            return
        sums = torch.where(targets[:, None], logs, 0.0).sum(dim=2)
        read = there[:, :-1].any(dim=1).numpy()
        gains = torch.where(there[:, :-1], sums[:, :-1] - sums[:, -1:], 0.0).sum(dim=1)
        mean = (gains / there[:, :-1].sum(dim=1).clamp_min(1)).numpy()
        yield own_row(name, "utility", mean[read], blocks[read], 0.0)
        yield own_row(name, "utility_marginal", (likely - sums[:, -1].numpy())[read], blocks[read], 0.0)
        if self.model.source in _SEARCHES:
            null, num = priors.exp()[:, -1].numpy(), there.sum(dim=1).double()
            yield own_row(name, "null_prior", null, blocks, float((1 / num).mean()), scale="share")

    @torch.no_grad()
    def _read(self, asked: _Asked) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(query, candidate, target) log-likelihoods, log priors, which candidates and which targets there are."""
        parts, width = [], int((asked.labels != UNSUPERVISED).sum(dim=1).max())
        for rows in _slices(len(asked.texts)):
            ids, mask, labels = asked.ids[rows], asked.mask[rows], asked.labels[rows]
            choice = self._choice(asked, rows, "own")
            logs, targets = self.model.log_likelihoods(ids, mask, labels, choice)
            missing = width - targets.shape[1]
            logs, targets = (torch.nn.functional.pad(one, (0, missing)) for one in (logs.double().cpu(), targets.cpu()))
            parts.append((logs, self._log_prior(ids, mask, choice), torch.from_numpy(choice.there), targets))
        logs, priors, there, targets = (torch.cat(one) for one in zip(*parts, strict=True))
        return logs, priors, there, targets

    def _choice(self, asked: _Asked, rows: slice, document: str) -> Candidates:
        """What each question reads: one passage, or the candidates of the model."""
        ids, mask, gold = asked.ids[rows], asked.mask[rows], asked.gold[rows]
        draws = np.array([hash64("own-candidates", 0, text) % (1 << 62) for text in asked.texts[rows]])
        if document == "own":
            none = np.zeros(len(gold), dtype=bool)
            return self.model.choose(ids, mask, self.objective.k, gold, draws, [()] * len(gold), none)
        others = draws % max(len(self._library) - 1, 1)
        drawn = others + (others >= gold) if len(self._library) > 1 else np.full(len(gold), NULL)
        one = {"none": np.full(len(gold), NULL), "gold": gold, "random": drawn}[document][:, None]
        return Candidates(ids=one, there=np.ones(one.shape, dtype=bool), scores=np.zeros(one.shape))

    def _log_prior(self, ids: Tensor, mask: Tensor, choice: Candidates) -> Tensor:
        if choice.ids.shape[1] == 1:
            return torch.zeros(choice.ids.shape, dtype=torch.float64)
        scores = self.model.logits(ids, mask, choice).double().cpu()
        return scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)

    # -- what is found ------------------------------------------------------------------------------------------------

    def _found(self, asked: _Asked) -> dict[str, np.ndarray]:
        systems = {"own": self._ranked(self.model, asked)}
        if self.model.source != "bm25":
            systems["bm25"] = self._by_words(asked)
        if self.first is not None:
            systems["frozen"] = self._ranked(self.first, asked)
        return systems

    @torch.no_grad()
    def _ranked(self, model: RetrievalModel, asked: _Asked) -> np.ndarray:
        """The passages of each question, best first."""
        if model.source == "bm25":
            return self._by_words(asked)
        assert model.retriever is not None
        assert model.passage_library is not None
        parts = [model.retriever.queries(asked.ids[rows], asked.mask[rows]) for rows in _slices(len(asked.texts))]
        return model.passage_library.by_vectors(torch.cat(parts), self._depth, [()] * len(asked.texts)).ids

    def _by_words(self, asked: _Asked) -> np.ndarray:
        special = self.text.vocabulary.is_special
        words = [row[~special[row]] for row in asked.ids.cpu().numpy()]
        return self._library.by_words(words, self._depth, [()] * len(words)).ids

    @property
    def _depth(self) -> int:
        return min(_DEPTH, len(self._library))

    @cached_property
    def _library(self) -> Library:
        """The model's own; of a closed book, which has none, that of the text."""
        return self.model.passage_library or self.text.passage_library()

    # -- questions ----------------------------------------------------------------------------------------------------

    def _asked(self, questions: Questions) -> _Asked:
        """At most so many, with their answers masked."""
        rows = spread(len(questions.texts), _MOST)
        tokens = [questions.rows.row(int(row)) for row in rows]
        spans = [questions.rows.example(int(row)).labels["spans"][0] for row in rows]
        shape = (len(rows), max(map(len, tokens)))
        ids = np.full(shape, self.text.vocabulary.pad, dtype=np.int64)
        mask, labels = np.zeros(shape, dtype=np.int64), np.full(shape, UNSUPERVISED, dtype=np.int64)
        for row, (own, (start, end)) in enumerate(zip(tokens, spans, strict=True)):
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
            labels[row, start:end] = own[start:end]
            ids[row, start:end] = self.text.vocabulary.mask
        arrays = (torch.from_numpy(one).to(self.model.device) for one in (ids, mask, labels))
        texts, answers = ([column[row] for row in rows] for column in (questions.texts, questions.answers))
        return _Asked(*arrays, questions.gold[rows], texts, answers)


def _slices(num: int) -> Iterator[slice]:
    yield from (slice(start, min(start + _BATCH, num)) for start in range(0, num, _BATCH))
