"""Regression: a number for a text or a pair of texts."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError
from infoflow.objectives import Batch, LossTerm, Noise
from infoflow.training import ExampleRows

from ._forward import answered, task_logits
from ._labels import label_numbers
from ._scoring import blocks_of, number_scores
from ._task import Predictions, Score, Shape
from ._task_rows import LABELS
from ._whole_text import AbstractTextTask


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression(AbstractTextTask):
    r"""The number of each text, or of each pair of texts if the corpus has the column `second`.

    The model predicts the label standardised by training's mean μ and standard deviation σ, so that learning rates do
    not depend on the scale; the loss is $\left(f(x) - (y - \mu) / \sigma\right)^2$, and the prediction is $\mu + \sigma
    f(x)$. A trained model is saved with a head that predicts in the label's unit (`settled`).
    """

    name: ClassVar[str] = "regression"
    shape: ClassVar[Shape] = "regression"
    term_weights: ClassVar[dict[str, float]] = {"regression": 1.0}

    task: str
    mean: float
    deviation: float
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str, train: Corpus) -> "Regression":
        """The task with the unit of a training part.

        Raises:
            UserError: A label is not a number, or all are the same.
        """
        values = label_numbers(train)
        if np.ptp(values) == 0:
            raise UserError(
                f"A regression needs labels that differ. All {len(values):,} of {train.name} are {values[0]:g}.\n"
                "Name another column (label=), or use more data."
            )
        return cls(task=task, mean=float(values.mean()), deviation=float(values.std()))

    def targets(self, corpus: Corpus) -> np.ndarray:
        """The number of each example, in standard deviations from the mean."""
        return ((label_numbers(corpus) - self.mean) / self.deviation).astype(np.float32)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Squared error, in units of training's variance; label smoothing does not apply."""
        return {self.name: LossTerm(total=self.example_losses(module, batch).sum(), count=len(batch))}

    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        return (self._answers(module, batch) - batch[LABELS]) ** 2

    def _answers(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """The model's output, in standard deviations from the mean."""
        return task_logits(module, batch)[:, 0]

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The number of each example, in the unit of the labels."""
        values = np.zeros(len(corpus))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            values[places] = self._answers(module, batch).cpu().numpy()
        values = self.mean + self.deviation * values
        wanted = tuple(str(label) for label in corpus.column("label"))
        return Predictions(said=tuple(f"{value:.4g}" for value in values), wanted=wanted, values=values)

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Pearson's and Spearman's correlation and r2, with training's mean as baseline."""
        guess = float(label_numbers(train).mean())
        return number_scores(label_numbers(corpus), predictions.values, guess, blocks_of(corpus))

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """None: for a number, a match of the first digits means nothing."""
        return np.zeros(len(predictions.said), dtype=bool)

    def settled(self, module: PreTrainedModel) -> "Regression":
        r"""Rescale the last layer, $w \cdot h + b$, to the label's unit: $\sigma w \cdot h + \sigma b + \mu$.

        A head without a bias (GPT-2's) cannot hold $\mu$: it stays as it is, and so does the task.
        """
        last = [one for one in module.modules() if isinstance(one, nn.Linear) and one.out_features == 1]
        if len(last) != 1 or last[0].bias is None:
            return self
        with torch.no_grad():
            last[0].weight.mul_(self.deviation)
            last[0].bias.mul_(self.deviation).add_(self.mean)
        return SettledRegression(task=self.task, mean=self.mean, deviation=self.deviation, labels=self.labels)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SettledRegression(Regression):
    """The same task for a model whose head predicts in the label's unit."""

    def _answers(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        return (task_logits(module, batch)[:, 0] - self.mean) / self.deviation

    def settled(self, module: PreTrainedModel) -> Regression:
        """Already settled."""
        return self
