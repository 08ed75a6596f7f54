"""Tagging: the tag of each word in a sentence, such as its part of speech or entity."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.corpus import NOT_A_WORD, Corpus, Encoded, Vocabulary
from infoflow.objectives import SENTENCE_FIELDS, UNSUPERVISED, Batch, Field, LossTerm, Noise
from infoflow.training import ExampleRows

from ._forward import answered, task_logits
from ._labels import check_known
from ._scoring import blocks_of, class_scores, entity_score, share_right
from ._tags import NOT_READ, are_entities
from ._task import AbstractTask, Predictions, Score, Shape
from ._task_rows import LABELS, TaskRows, Tokens

WORDS = "words"
"""Batch key: index of the word that a token begins, from 0; -1 for all other tokens."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Tagging(AbstractTask):
    """The tag of each word, predicted at its first token; other tokens have no label.

    The loss is the mean over words of -log p(tag). Words beyond the model's maximum length count as errors.
    """

    name: ClassVar[str] = "tagging"
    shape: ClassVar[Shape] = "tagging"
    head: ClassVar[str] = "AutoModelForTokenClassification"
    term_weights: ClassVar[dict[str, float]] = {"tagging": 1.0}
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, WORDS: Field(pad=NOT_A_WORD)}

    task: str
    labels: tuple[str, ...]
    column: str = "tag"  # of the corpus

    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Sentences as token ids, with the number of the tag at each word's first token.

        Raises:
            UserError: There are no words or tags, a tag does not occur in training, or the tokenizer cannot align
                words.
        """
        corpus.require("words", self.column)
        places = {tag: place for place, tag in enumerate(self.labels)}
        encoded = corpus.encode(tokenizer, max_length=max_length)
        check_known((tag for tags in corpus.column(self.column) for tag in tags), places, corpus, "tags")
        words = [first_pieces(encoded.words(row)) for row in range(len(encoded))]
        labels = [
            _asked(places_of, [places[tag] for tag in tags])
            for places_of, tags in zip(words, corpus.column(self.column), strict=True)
        ]
        return TaskRows(_tokens(encoded), corpus.ids, labels=labels, words=words)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the words' tags."""
        losses = _word_losses(task_logits(module, batch), batch[LABELS], label_smoothing)
        return {self.name: LossTerm(total=losses.sum(), count=batch.supervised_tokens)}

    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """Mean loss over the words of each sentence."""
        losses = _word_losses(task_logits(module, batch), batch[LABELS], 0.0)
        return losses.sum(1) / (batch[LABELS] != UNSUPERVISED).sum(1).clamp(min=1)

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The most likely tag of each word; the value is their mean probability, over the words that were read."""
        wanted = [list(tags) for tags in corpus.column(self.column)]
        said = [[NOT_READ] * len(tags) for tags in wanted]
        values = np.zeros(len(corpus))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            best, tags = task_logits(module, batch).softmax(-1).max(-1)
            words = batch[WORDS].cpu().numpy()
            for place, word, tag, share in zip(places, words, tags.cpu().numpy(), best.cpu().numpy(), strict=True):
                first = word != NOT_A_WORD
                for index, answer in zip(word[first].tolist(), tag[first].tolist(), strict=True):
                    said[place][index] = self.labels[answer]
                values[place] = share[first].mean() if first.any() else 0.0
        return Predictions(
            said=tuple(" ".join(tags) for tags in said), wanted=tuple(" ".join(tags) for tags in wanted), values=values
        )

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Entities: micro-F1 (as in CoNLL's script) and word accuracy.

        Other tags: word accuracy and macro-F1. The baseline guesses the most frequent training tag.
        """
        wanted, said = ([tags.split() for tags in side] for side in (predictions.wanted, predictions.said))
        guess = Counter(tag for tags in train.column(self.column) for tag in tags).most_common(1)[0][0]
        blocks = blocks_of(corpus)
        of_words = np.repeat(blocks, [len(tags) for tags in wanted])
        right, given = (np.array([tag for tags in side for tag in tags], dtype=object) for side in (wanted, said))
        if are_entities(self.labels):
            read = [["O" if tag == NOT_READ else tag for tag in tags] for tags in said]
            baseline = float((right == guess).mean())
            return [
                entity_score(wanted, read, guess, blocks),
                share_right("accuracy", right == given, of_words, baseline),
            ]
        places = {tag: place for place, tag in enumerate((*self.labels, NOT_READ))}
        numbers = (np.array([places[tag] for tag in side], dtype=np.int64) for side in (right, given))
        return class_scores(*numbers, places[guess], len(self.labels), of_words)[:2]


def first_pieces(words: np.ndarray) -> np.ndarray:
    """The word index of each token that begins a word, else -1: int64 (token,)."""
    first = np.ones(len(words), dtype=bool)
    first[1:] = words[1:] != words[:-1]
    return np.where(first, words, NOT_A_WORD).astype(np.int64)


def _asked(words: np.ndarray, tags: list[int]) -> np.ndarray:
    """The index of the tag at each word's first token, UNSUPERVISED elsewhere: int64 (token,)."""
    labels = np.full(len(words), UNSUPERVISED, dtype=np.int64)
    first = words != NOT_A_WORD
    labels[first] = np.array(tags, dtype=np.int64)[words[first]]
    return labels


def _tokens(encoded: Encoded) -> list[Tokens]:
    lengths = encoded.lengths
    return [
        Tokens(ids=encoded.row(row).tolist(), segments=None, cut=bool(lengths[row] == encoded.max_length))
        for row in range(len(encoded))
    ]


def _word_losses(logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy at each token, 0 where there is no label: (batch, token)."""
    return F.cross_entropy(
        logits.transpose(1, 2),
        labels,
        ignore_index=UNSUPERVISED,
        reduction="none",
        label_smoothing=label_smoothing,
    ).masked_fill(labels == UNSUPERVISED, 0.0)
