"""What a study's readers are trained on (tokenizer, passages, queries), and whether they have learned it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Corpus, FactConfig, FactWorld, Vocabulary, generate_facts, train_tokenizer
from infoflow.foundation import block_of, block_sums, current_display, digest, hash64
from infoflow.objectives import UNSUPERVISED, Batch
from infoflow.subjects.adaptation.measures import load_task
from infoflow.training import TokenRows, TrainingData

from ..models import NULL, Library, Passages, QueryLeakage, RetrievalModel, query_leakage
from ..objectives._retrieval_lm import RetrievalLM
from ..training._query_rows import PassageRows, QueryRows, QuestionRows, fact_query_rows, question_rows

TRAINED, HELD_OUT = "trained", "held out"
_QUERY_SHARE = 0.5  # share of the reader's positions that a question with its answer may take


class AbstractReadingMatter(ABC):
    """A generated world of facts, or questions about real text; the readers of a study share it."""

    positions: int  # maximum tokens of an input

    @property
    @abstractmethod
    def tokenizer(self) -> Any:
        """Tokenizer of reader and retriever."""

    @abstractmethod
    def passage_library(self) -> Library:
        """A new library of the passages, in which a model keeps its own index."""

    @property
    @abstractmethod
    def query_rows(self) -> Any:
        """The training queries."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """Accuracy on training queries of a guess that knows only the kind of answer."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self.tokenizer)

    @cached_property
    def queries(self) -> TrainingData:
        """The training text, whose answers are predicted."""
        return self._data(self.query_rows)

    @cached_property
    def cloze(self) -> TrainingData:
        """Passages with their sentences."""
        return self._data(PassageRows(self.passage_library()))

    def _data(self, rows: Any) -> TrainingData:
        return TrainingData(source=rows, vocabulary=self.vocabulary, tokenizer=self.tokenizer)


@final
@dataclass(frozen=True, eq=False)
class ReadWorld(AbstractReadingMatter):
    """A world of facts with its tokenizer."""

    world: FactWorld
    positions: int

    @cached_property
    def tokenizer(self) -> Any:
        """A tokenizer with one token per word."""
        return self.world.tokenizer(self.positions)

    def passage_library(self, edited: bool = False) -> Library:
        """The world's passages, or those of the edited index."""
        return Library(Passages.from_rows(self.world.passages(edited)), self.tokenizer, self.positions)

    @cached_property
    def query_rows(self) -> Any:
        """Queries that mask objects; long language sentences are cut to leave room for the reader's [SEP]."""
        return fact_query_rows(self.world, self.world.tokenizer(self.positions - 1), self.passage_library())

    @property
    def chance(self) -> float:
        """Accuracy of a guess among the one-word objects of a relation, or among all objects if all are dates."""
        return 1 / self.world.config.choices(0)


@lru_cache(maxsize=4)
def read_world(config: FactConfig, seed: int, positions: int) -> ReadWorld:
    """The world for these settings, generated once per process."""
    return ReadWorld(generate_facts(config, seed), positions)


@final
@dataclass(frozen=True, eq=False)
class Questions:
    """Masked questions and their correct answers."""

    rows: QueryRows
    texts: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]  # all correct answers; the first that fits sets the number of masks
    gold: np.ndarray  # int64 (question,): the passage that each question targets


@final
@dataclass(frozen=True, eq=False)
class ReadText(AbstractReadingMatter):
    """Passages with questions whose answers occur in them: `train`, `dev` (to choose settings) and `test`, with one
    index.
    """

    parts: Mapping[str, Corpus]
    vocabulary_size: int
    positions: int
    answer_tokens: int  # maximum tokens of an answer

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer learned from all passages and the training questions."""
        texts = [*self._texts, *(str(one) for one in self.parts["train"].column("question"))]
        return train_tokenizer(texts, self.vocabulary_size, max_length=self.positions)

    @cached_property
    def digest(self) -> str:
        """Digest of everything that determines the tokens."""
        parts = [self.parts[name].digest for name in ("train", "dev", "test")]
        return digest(["questions", *parts, self.vocabulary_size, self.positions, self.answer_tokens])

    def passage_library(self) -> Library:
        """Long passages are truncated around their answers, so that the gold passage still has the answer."""
        return Library(Passages.from_rows(self._texts), self.tokenizer, self.positions, answers=self._answers)

    @property
    def query_rows(self) -> QueryRows:
        return self.questions[TRAINED].rows

    @cached_property
    def questions(self) -> dict[str, Questions]:
        """Training questions and held-out questions."""
        library = self.passage_library()
        _tell_of(library)
        return {TRAINED: self._questions("train", library), HELD_OUT: self._questions("test", library)}

    @cached_property
    def leakage(self) -> QueryLeakage:
        """Which held-out questions also occur in training, in the same words."""
        return query_leakage(self.questions[HELD_OUT].texts, self.questions[TRAINED].texts)

    @cached_property
    def chance(self) -> float:
        """Accuracy of always predicting the most frequent answer."""
        first = Counter(one[0] for one in self.questions[TRAINED].answers)
        return max(first.values()) / first.total()

    @cached_property
    def _texts(self) -> list[str]:
        return list(dict.fromkeys(one.text for corpus in self.parts.values() for one in corpus))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self._texts)}

    @property
    def _answers(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for corpus in self.parts.values():
            for one in corpus:
                if one.answers:
                    found.setdefault(self._places[one.text], []).extend(one.answers)
        return found

    def _questions(self, part: str, library: Library) -> Questions:
        corpus = self.parts[part]
        asked = corpus.select([row for row, one in enumerate(corpus) if one.answers])
        texts, answers = [str(one.question) for one in asked], [tuple(one.answers or ()) for one in asked]
        gold = np.array([self._places[one.text] for one in asked])
        shortest = [min(each, key=self._num_tokens) for each in answers]
        limits = {"max_length": int(_QUERY_SHARE * self.positions), "answer_tokens": self.answer_tokens}
        found = question_rows(texts, shortest, asked.ids, self.tokenizer, library, gold, **limits)
        self._tell(part, len(corpus), found)
        kept = found.kept.tolist()
        right = [(shortest[row], *(one for one in answers[row] if one != shortest[row])) for row in kept]
        return Questions(found.rows, tuple(texts[row] for row in kept), tuple(right), gold[kept])

    def _num_tokens(self, answer: str) -> int:
        return len(self.tokenizer(answer, add_special_tokens=False).input_ids)

    def _tell(self, part: str, num: int, found: QuestionRows) -> None:
        if num > len(found.kept):
            current_display().note(
                f"{part}: {num - len(found.kept):,} of {num:,} questions are left out, since they have no answer of at "
                f"most {self.answer_tokens} tokens."
            )
        if found.rows.num_specials:
            current_display().note(
                f"{part}: {found.rows.num_specials:,} special tokens that occur in questions are read as text."
            )
        if found.num_cut:
            current_display().note(f"{part}: {found.num_cut:,} questions exceed the length limit and were truncated.")


def _tell_of(library: Library) -> None:
    if library.num_specials:
        current_display().note(f"{library.num_specials:,} special tokens that occur in passages are read as text.")
    if library.num_cut:
        current_display().note(
            f"{library.num_cut:,} of {len(library):,} passages exceed the length limit and are truncated."
        )


@lru_cache(maxsize=2)
def read_text(train: str, test: str, vocabulary_size: int, positions: int, answer_tokens: int) -> ReadText:
    """The questions in these files, read once per process."""
    task = load_task("retrieval.corpus", train=train, test=test or None, shape="span")
    parts = {"train": task.train, "dev": task.dev, "test": task.test}
    return ReadText(parts, vocabulary_size, positions, answer_tokens)


# Whether a retrieval model has learned to answer its training queries.

_ASKED, _BATCH = 512, 64
_MARGIN = 0.05  # required margin over a guess


class TrainingAccuracy(NamedTuple):
    """P@1 on training queries, by blocks of queries, and the accuracy of a guess."""

    right: np.ndarray  # float64 (block,)
    asked: np.ndarray  # float64 (block,)
    chance: float

    @property
    def value(self) -> float:
        return float(self.right.sum() / self.asked.sum())

    @property
    def learned(self) -> bool:
        """Whether the model clearly beats a guess; otherwise it knows at most which kind of object is expected."""
        return self.value > self.chance + _MARGIN


@torch.no_grad()
def training_accuracy(
    model: RetrievalModel, objective: RetrievalLM, data: TrainingData, chance: float
) -> TrainingAccuracy:
    r"""Accuracy of the most probable word of \(\sum_z \pi(z) p(y|z, x)\), on 512 queries whose only mask is the object.

    If no query has a single mask (all answers have several tokens), all masks of a query must be correct.
    """
    asking = replace(objective.for_evaluation(), masking="salient")
    source = data.source
    looked = spread(len(source.lengths), 8 * _ASKED).tolist()
    masks = {row: _num_masks(source.example(row).labels) for row in looked}  # type: ignore[union-attr]
    rows = [row for row in looked if masks[row] == 1] or [row for row in looked if masks[row] > 1]
    chosen = np.array(rows)[spread(len(rows), _ASKED)]
    right = np.zeros(len(chosen))
    for start in range(0, len(chosen), _BATCH):
        batch = data.batch(asking, chosen[start : start + _BATCH], ("training-accuracy",), 0)
        right[start : start + len(batch)] = _right(model, asking, batch.to(model.device))
    blocks = text_blocks(source, chosen)
    return TrainingAccuracy(
        right=block_sums(right, blocks), asked=block_sums(np.ones(len(blocks)), blocks), chance=chance
    )


def text_blocks(source: TokenRows, rows: np.ndarray) -> np.ndarray:
    """The bootstrap block of each of these rows; rows with the same tokens share one."""
    texts = np.array([hash64("row", *source.row(row).tolist()) for row in rows.tolist()], dtype=np.uint64)
    _, first, place = np.unique(texts, return_index=True, return_inverse=True)
    return block_of(source.sentence_ids[rows[first]])[place]


def spread(num: int, most: int) -> np.ndarray:
    """At most `most` of `num` rows, evenly spaced."""
    return np.linspace(0, num - 1, min(most, num)).astype(int)


def _num_masks(labels: dict[str, np.ndarray]) -> int:
    """Number of tokens in the query's span; 0 if the query has several spans or none, or no passage answers it."""
    spans = labels["spans"]
    return int(spans[0, 1] - spans[0, 0]) if int(labels["gold"]) != NULL and len(spans) == 1 else 0


def _right(model: RetrievalModel, objective: RetrievalLM, batch: Batch) -> np.ndarray:
    ids, mask, labels = batch.input_ids, batch.attention_mask, batch.labels
    choice = objective.choice(model, batch)
    there = torch.from_numpy(choice.there).to(ids.device)
    prior = model.logits(ids, mask, choice).masked_fill(~there, float("-inf")).softmax(dim=1)
    words = model.word_log_probabilities(ids, mask, labels, choice)  # (query, candidate, mask, word)
    right = np.ones(len(ids), dtype=bool)
    for index, target in enumerate(_targets(labels)):
        marginal = (prior[:, :, None] * words[:, :, index].exp()).sum(dim=1)
        right &= ((marginal.argmax(dim=-1) == target) | (target == UNSUPERVISED)).cpu().numpy()
    return right.astype(np.float64)


def _targets(labels: Tensor) -> list[Tensor]:
    """The word at the first mask of each query, at the second, ...; −100 if a query has no such mask."""
    asked = labels != UNSUPERVISED
    rank = asked.cumsum(dim=1)
    places = range(1, int(rank.max()) + 1)
    return [torch.where(asked & (rank == place), labels, UNSUPERVISED).amax(dim=1) for place in places]
