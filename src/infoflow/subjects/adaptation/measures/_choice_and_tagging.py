"""Multiple choice (which answer to a question about a text is right), and tagging (the tag of each word)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import NOT_A_WORD, Corpus, Vocabulary
from infoflow.foundation import UserError, as_written
from infoflow.objectives import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Example, Field, LossTerm, Noise
from infoflow.training import ExampleRows

from ._scoring import blocks_of, class_scores, entity_score, share_right
from ._task import NOT_READ, AbstractTask, Predictions, Score, Shape, are_entities, check_known
from ._task_rows import LABELS, SEGMENTS, TaskRows, Tokens, answered, padded, read_texts, rows_digest, task_logits

MASK, CHOICES = "attention_mask", "choices"  # batch keys: which tokens of each choice are real; which choices exist


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Choice(AbstractTask):
    r"""Multiple choice: the model scores each choice, a softmax over the scores gives p, and the loss is
    $-\log p(\text{right})$. Examples may have different numbers of choices.

    The text is truncated if text, question and choice exceed the length limit.
    """

    name: ClassVar[str] = "choice"
    shape: ClassVar[Shape] = "choice"
    head: ClassVar[str] = "AutoModelForMultipleChoice"
    term_weights: ClassVar[dict[str, float]] = {"choice": 1.0}
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, SEGMENTS: Field(), MASK: Field(), CHOICES: Field()}

    task: str
    labels: tuple[str, ...] = ()

    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Each choice as `[CLS] text [SEP] question choice [SEP]`, as token ids; row i is row i of the corpus."""
        labels = right_places(corpus)
        numbers = [len(choices) for choices in corpus.column("choices")]
        contexts = (text for text, count in zip(corpus.column("text"), numbers, strict=True) for _ in range(count))
        needed = (
            f"{question} {choice}"
            for question, choices in zip(corpus.column("question"), corpus.column("choices"), strict=True)
            for choice in choices
        )
        tokens = iter(read_texts(tokenizer, contexts, needed, max_length, keep_second=True))
        choices = [[next(tokens) for _ in range(count)] for count in numbers]
        arrays = (np.array([*one.ids, -1, *(one.segments or ())], dtype=np.int64) for each in choices for one in each)
        hashed = rows_digest("choices", (array.tobytes() for array in (labels, *arrays)))
        return TaskRows(choices, corpus.ids, hashed, labels=labels)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The choices stacked: arrays (choice, token)."""
        mask = padded([np.ones_like(text) for text in example.texts], 0)
        arrays = {
            "input_ids": padded(example.texts, vocabulary.pad),
            MASK: mask,
            CHOICES: np.ones(len(mask), dtype=bool),
            **example.labels,
        }
        return Corrupted(arrays=arrays, selected=np.zeros(len(mask), dtype=bool))

    def collate(
        self,
        examples: Sequence[Corrupted],
        vocabulary: Vocabulary,
        target: Vocabulary | None = None,
        noise: Noise | None = None,
    ) -> Batch:
        """Arrays (batch, choice, token), as `AutoModelForMultipleChoice` takes them."""
        batch = AbstractTask.collate(self, examples, vocabulary, target, noise)
        mask = batch[MASK]
        tokens = int(mask.sum())
        # Filler choices consist of padding, but keep one token, since attention over no token would be NaN.
        mask[..., 0] = 1
        return replace(batch, source_tokens=tokens)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: len(batch)}

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Cross-entropy of the right choice; label smoothing covers existing choices only."""
        logits, there = _choice_logits(module, batch), batch[CHOICES]
        losses = F.cross_entropy(logits, batch[LABELS], reduction="none")
        if not label_smoothing:
            return losses
        log_p = logits.log_softmax(-1).masked_fill(~there, 0.0)
        return (1 - label_smoothing) * losses - label_smoothing * log_p.sum(1) / there.sum(1)

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The most likely choice of each question with its probability."""
        found: dict[int, np.ndarray] = {}
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            probabilities = _choice_logits(module, batch).softmax(-1).cpu().numpy().astype(np.float64)
            found |= dict(zip(places.tolist(), probabilities, strict=True))
        choices, right = list(corpus.column("choices")), right_places(corpus)
        return Predictions(
            said=tuple(each[found[row].argmax()] for row, each in enumerate(choices)),
            wanted=tuple(each[place] for each, place in zip(choices, right, strict=True)),
            values=np.array([found[row].max() for row in range(len(choices))]),
        )

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Accuracy, with the baseline of always choosing the position that is most often right in training."""
        guess = Counter(right_places(train).tolist()).most_common(1)[0][0]
        right = np.array(predictions.said, dtype=object) == np.array(predictions.wanted, dtype=object)
        baseline = float((right_places(corpus) == guess).mean())
        return [share_right("accuracy", right, blocks_of(corpus), baseline)]


def right_places(corpus: Corpus) -> Int[np.ndarray, " example"]:
    """The index of the right choice of each example, from 0; labels are either all indices or all texts of choices."""
    corpus.require("question", "choices", "label")
    choices, labels = list(corpus.column("choices")), list(corpus.column("label"))
    short = next((row for row, each in enumerate(choices) if len(each) < 2), None)
    if short is not None:
        raise UserError(
            f"A choice needs at least two answers. {corpus.name}, example {short + 1}, has {len(choices[short])}."
            "\nCorrect it, or leave it out."
        )
    pairs = list(zip(labels, choices, strict=True))
    ways = [
        [int(label) if (label or "").isdecimal() and int(label) < len(each) else None for label, each in pairs],
        [each.index(label) if label in each else None for label, each in pairs],
    ]
    for places in ways:
        if None not in places:
            return np.array(places, dtype=np.int64)
    wrong = ways[1 if ways[1].count(None) < ways[0].count(None) else 0].index(None)
    raise UserError(
        "A label must be the index of the right choice, counted from 0, or the choice itself. "
        f"{corpus.name}, example {wrong + 1}, has {as_written(labels[wrong])} for {len(choices[wrong])} choices.\n"
        "Correct it, or name another column (label=)."
    )


def _choice_logits(module: PreTrainedModel, batch: Batch) -> Float[Tensor, "example choice"]:
    return task_logits(module, batch).masked_fill(~batch[CHOICES], float("-inf"))


# Tagging: the tag of each word in a sentence, such as its part of speech or entity.

WORDS = "words"  # batch key: index of the word that a token begins, from 0; -1 for all other tokens


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
        """Sentences as token ids, with the number of the tag at each word's first token."""
        corpus.require("words", self.column)
        places = {tag: index for index, tag in enumerate(self.labels)}
        encoded = corpus.encode(tokenizer, max_length=max_length)
        check_known((tag for tags in corpus.column(self.column) for tag in tags), places, corpus, "tags")
        words = [first_pieces(encoded.words(row)) for row in range(len(encoded))]
        labels = [
            _labelled_words(places_of, [places[tag] for tag in tags])
            for places_of, tags in zip(words, corpus.column(self.column), strict=True)
        ]
        tokens = [Tokens(ids=encoded.row(row).tolist(), segments=None) for row in range(len(encoded))]
        return TaskRows.of(tokens, corpus, labels=labels, words=words)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the words' tags."""
        losses = _word_losses(task_logits(module, batch), batch[LABELS], label_smoothing)
        return {self.name: LossTerm(total=losses.sum(), count=batch.supervised_tokens)}

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Mean loss over the words of each sentence."""
        losses = _word_losses(task_logits(module, batch), batch[LABELS], label_smoothing)
        return losses.sum(1) / (batch[LABELS] != UNSUPERVISED).sum(1).clamp(min=1)

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The most likely tag of each word; a sentence's value is the mean probability of the tags of words read."""
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
        places = {tag: index for index, tag in enumerate((*self.labels, NOT_READ))}
        numbers = (np.array([places[tag] for tag in side], dtype=np.int64) for side in (right, given))
        return class_scores(*numbers, places[guess], len(self.labels), of_words)[:2]


def first_pieces(words: np.ndarray) -> np.ndarray:
    """The word index of each token that begins a word, else -1: int64 (token,)."""
    first = np.ones(len(words), dtype=bool)
    first[1:] = words[1:] != words[:-1]
    return np.where(first, words, NOT_A_WORD).astype(np.int64)


def _labelled_words(words: np.ndarray, tags: list[int]) -> np.ndarray:
    """The index of the tag at each word's first token, UNSUPERVISED elsewhere: int64 (token,)."""
    labels = np.full(len(words), UNSUPERVISED, dtype=np.int64)
    first = words != NOT_A_WORD
    labels[first] = np.array(tags, dtype=np.int64)[words[first]]
    return labels


def _word_losses(logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy at each token, 0 where there is no label: (batch, token)."""
    return F.cross_entropy(
        logits.transpose(1, 2),
        labels,
        ignore_index=UNSUPERVISED,
        reduction="none",
        label_smoothing=label_smoothing,
    ).masked_fill(labels == UNSUPERVISED, 0.0)
