"""Classification of a text or a pair of texts, with one or several labels."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.corpus import Corpus, Vocabulary
from infoflow.objectives import Batch, LossTerm, Noise
from infoflow.training import ExampleRows

from ._forward import answered, task_logits
from ._labels import SEVERAL, label_indices, label_sets, several
from ._scoring import blocks_of, class_scores, set_scores
from ._task import Predictions, Score, Shape
from ._task_rows import LABELS
from ._whole_text import AbstractTextTask

Main = Literal["accuracy", "macro_f1", "matthews", "micro_f1"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(AbstractTextTask):
    r"""The class of each text, or of each pair of texts if the corpus has the column `second`.

    The loss is $-\log p(y)$, with a softmax over the classes. With `multi` an example may have several labels or none
    (`A|B`): its loss is the sum over the labels of $-\log$ of the sigmoid, and a label is predicted if its probability
    is at least a half.
    """

    name: ClassVar[str] = "classification"
    shape: ClassVar[Shape] = "classification"
    term_weights: ClassVar[dict[str, float]] = {"classification": 1.0}

    task: str
    labels: tuple[str, ...]
    multi: bool = False
    main: Main = "accuracy"  # the metric for model selection; with several labels always micro_f1

    def targets(self, corpus: Corpus) -> np.ndarray:
        """The index of each example's class; with several labels, the mask of its labels, (example, label)."""
        return label_sets(corpus, self.labels) if self.multi else label_indices(corpus, self.labels)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the classes."""
        losses = self._losses(task_logits(module, batch), batch[LABELS], label_smoothing)
        return {self.name: LossTerm(total=losses.sum(), count=len(batch))}

    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        return self._losses(task_logits(module, batch), batch[LABELS], 0.0)

    def _losses(self, logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
        if not self.multi:
            return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
        wanted = labels.float() * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1)

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The most likely class of each example with its probability, and all classes in order.

        With several labels: those of at least a half, with the probability of exactly this set if labels are
        independent.
        """
        probabilities = np.zeros((len(corpus), len(self.labels)))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            logits = task_logits(module, batch)
            of_batch = logits.sigmoid() if self.multi else logits.softmax(-1)
            probabilities[places] = of_batch.cpu().numpy()
        wanted = tuple(label or "" for label in corpus.column("label"))
        return self._chosen(probabilities, wanted) if self.multi else self._likeliest(probabilities, wanted)

    def _likeliest(self, probabilities: np.ndarray, wanted: tuple[str, ...]) -> Predictions:
        order = np.argsort(-probabilities, axis=1, kind="stable")
        said = tuple(self.labels[best] for best in order[:, 0])
        alternatives = tuple(
            tuple((self.labels[place], float(row[place])) for place in places)
            for row, places in zip(probabilities, order, strict=True)
        )
        return Predictions(said=said, wanted=wanted, values=probabilities.max(1), alternatives=alternatives)

    def _chosen(self, probabilities: np.ndarray, wanted: tuple[str, ...]) -> Predictions:
        chosen = probabilities >= 0.5
        names = np.array(self.labels, dtype=object)
        return Predictions(
            said=tuple(SEVERAL.join(names[row]) for row in chosen),
            wanted=tuple(SEVERAL.join(several(label)) for label in wanted),
            values=np.where(chosen, probabilities, 1 - probabilities).prod(1),
        )

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Accuracy, macro-F1 and Matthews' correlation, with the most frequent training class as baseline.

        With several labels: micro-F1, macro-F1 and accuracy, with the label set that scores best on training as
        baseline.
        """
        blocks = blocks_of(corpus)
        if self.multi:
            sides = [self._sets(side) for side in (predictions.wanted, predictions.said)]
            guess = best_set(self._sets(tuple(label or "" for label in train.column("label"))))
            return set_scores(*sides, guess, blocks)
        places = {label: place for place, label in enumerate(self.labels)}
        wanted, said = (
            np.array([places[label] for label in side], dtype=np.int64)
            for side in (predictions.wanted, predictions.said)
        )
        guess = Counter(train.column("label")).most_common(1)[0][0]
        found = class_scores(wanted, said, places[guess], len(self.labels), blocks)
        return sorted(found, key=lambda score: score.metric != self.main)

    def _sets(self, side: tuple[str, ...]) -> np.ndarray:
        places = {label: place for place, label in enumerate(self.labels)}
        chosen = np.zeros((len(side), len(self.labels)), dtype=bool)
        for row, label in enumerate(side):
            chosen[row, [places[part] for part in several(label)]] = True
        return chosen


def best_set(wanted: np.ndarray) -> np.ndarray:
    """The label set with the highest micro-F1 if predicted for every example: the most frequent ones. Bool (class,)."""
    often = wanted.sum(0)
    order = np.argsort(-often, kind="stable")
    numbers = np.arange(1, len(order) + 1)
    f1 = 2 * np.cumsum(often[order]) / (wanted.sum() + len(wanted) * numbers)
    guess = np.zeros(len(order), dtype=bool)
    guess[order[: int(f1.argmax()) + 1]] = True
    return guess
