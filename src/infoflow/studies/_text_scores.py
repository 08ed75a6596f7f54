"""What a reader of real text finds and answers: rows of `retrieval_scores`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.foundation import hash64
from infoflow.objectives import UNSUPERVISED, RetrievalLM
from infoflow.retrieval import (
    RETRIEVAL_SCORES,
    Candidates,
    Library,
    RetrievalModel,
    answer_scores,
    question_blocks,
    retrieval_scores,
)

from ._question_reading import SEARCHES, Asked, QuestionReading, alone, ranked_by_words, slices, without_passage
from ._read_text import HELD_OUT, TRAINED, Questions, ReadText
from ._training_accuracy import spread

NOT_LEAKED = "not leaked"
DOCUMENTS = ("none", "gold", "random", "own")
_CUTS = (1, 2, 5, 20)
_MOST = 600  # questions of a part


class _Questions(NamedTuple):
    """Some questions as a retrieval model reads them."""

    asked: Asked
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
    | own, bm25, frozen  | hit, recall, mrr, collapse, nothing_found | of the passage that was asked about    |

    Queries are "trained" and "held out", at most 600 of each; "not leaked" are those of the latter that training does
    not ask, where it asks some. Masks tell how many tokens an answer has, and each is filled by itself:
    \(\arg\max_w \sum_z \pi(z) p(w_j = w | z, x)\). The baseline of em and f1 is the most frequent right answer, said
    to all.
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
            parts = [frame for given, groups in self._parts() for frame in self._of(given, groups)]
        finally:
            self.model.passage_library = had
        return RETRIEVAL_SCORES.conform(pd.concat(parts, ignore_index=True))

    def _parts(self) -> Iterator[tuple[_Questions, dict[str, np.ndarray]]]:
        """Questions of each part, and the groups of them that are told of: their places, by name."""
        for name in (TRAINED, HELD_OUT):
            questions = self.text.questions[name]
            rows = spread(len(questions.texts), _MOST)
            groups = {name: np.arange(len(rows))}
            others = np.flatnonzero(~np.isin(rows, self.text.leakage.leaked))
            if name == HELD_OUT and 0 < len(others) < len(rows):
                groups[NOT_LEAKED] = others
            yield self._questions(questions, rows), groups

    def _of(self, given: _Questions, groups: Mapping[str, np.ndarray]) -> Iterator[pd.DataFrame]:
        """Every question is read once, whichever groups it is in."""
        documents = [one for one in DOCUMENTS if one != "own" or self.model.source != "none"]
        said = {document: self._said(given.asked, document) for document in documents}
        read = self._reading.read(given.asked)
        found = self._found(given.asked) if self.model.source in SEARCHES else {}
        for name, places in groups.items():
            texts, answers = ([column[place] for place in places] for column in (given.texts, given.answers))
            for document in documents:
                own = [said[document][place] for place in places]
                yield answer_scores(own, answers, texts, system=document, queries=name)
            blocks, words = question_blocks(texts), self.text.vocabulary.size
            yield pd.DataFrame(list(self._reading.made(name, read.take(places), blocks, words)))
            if found:
                relevant = [[int(one)] for one in given.asked.gold[places]]
                own_found = {system: ranking[places] for system, ranking in found.items()}
                yield retrieval_scores(own_found, relevant, texts, len(self._library), _CUTS, name)

    @torch.no_grad()
    def _said(self, asked: Asked, document: str) -> list[str]:
        """What is answered with a document."""
        said: list[str] = []
        for rows in slices(asked):
            ids, mask, labels = asked.ids[rows], asked.mask[rows], asked.labels[rows]
            choice, prior = self._read_beside(asked, rows, document)
            words = self.model.word_log_probabilities(ids, mask, labels, choice).double().cpu()
            best = (prior[:, :, None, None] * words.exp()).sum(dim=1).argmax(dim=-1)  # (query, target)
            lengths = (labels != UNSUPERVISED).sum(dim=1).tolist()
            said += [
                self.text.tokenizer.decode(row[:num].tolist(), skip_special_tokens=True).strip()
                for row, num in zip(best, lengths, strict=True)
            ]
        return said

    def _read_beside(self, asked: Asked, rows: slice, document: str) -> tuple[Candidates, Tensor]:
        """What each question reads, one passage or the candidates of the model, and with which weight."""
        if document == "own":
            choice = self._reading.choice(asked, rows)
            return choice, self._reading.log_prior(asked.ids[rows], asked.mask[rows], choice).exp()
        gold = asked.gold[rows]
        if document == "none":
            choice = without_passage(len(gold))
        else:
            choice = alone(gold if document == "gold" else self.model.drawn(asked.draws[rows], gold))
        return choice, torch.ones(choice.ids.shape, dtype=torch.float64)

    def _found(self, asked: Asked) -> dict[str, np.ndarray]:
        systems = {"own": self._reading.ranked(asked, self._library)}
        if self.model.source != "bm25":
            systems["bm25"] = ranked_by_words(asked, self._library)
        if self.first is not None and self.first.passage_library is not None:
            first = QuestionReading(self.first, self.objective)
            systems["frozen"] = first.ranked(asked, self.first.passage_library)
        return systems

    @cached_property
    def _reading(self) -> QuestionReading:
        return QuestionReading(self.model, self.objective)

    @cached_property
    def _library(self) -> Library:
        """The model's own; of a closed book, which has none, that of the text."""
        return self.model.passage_library or self.text.passage_library()

    def _questions(self, questions: Questions, rows: np.ndarray) -> _Questions:
        """Some of them, with their answers masked."""
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
        draws = np.array([hash64("own-candidates", 0, text) % (1 << 62) for text in texts])
        return _Questions(Asked(*arrays, gold=questions.gold[rows], draws=draws), texts, answers)
