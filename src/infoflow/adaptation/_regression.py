"""The number that a text, or a pair of texts, is given."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from torch import Tensor
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


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Regression(AbstractTextTask):
    r"""The number of each text; of pairs of texts where the corpus has the column `second`.

    The model writes the label in units of training's standard deviation σ from training's mean μ, so that learning
    rates mean the same whatever the scale; the loss is $\left(f(x) - (y - \mu) / \sigma\right)^2$, and what is said
    is $\mu + \sigma f(x)$.
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
        """The task whose unit is that of a training part.

        Raises:
            UserError: A label is no number, or all are the same.
        """
        values = label_numbers(train)
        if np.ptp(values) == 0:
            raise UserError(
                f"A regression needs labels that differ. All {len(values):,} of {train.name} are {values[0]:g}.\n"
                "Name another column (label=), or give more data."
            )
        return cls(task=task, mean=float(values.mean()), deviation=float(values.std()))

    def targets(self, corpus: Corpus) -> np.ndarray:
        """The number of each example, in standard deviations from the mean."""
        return ((label_numbers(corpus) - self.mean) / self.deviation).astype(np.float32)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Squared error, in units of training's variance; numbers are not smoothed."""
        return {self.name: LossTerm(total=self.example_losses(module, batch).sum(), count=len(batch))}

    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        return (task_logits(module, batch)[:, 0] - batch[LABELS]) ** 2

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The number of each example, in the unit of the labels."""
        values = np.zeros(len(corpus))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            values[places] = task_logits(module, batch)[:, 0].cpu().numpy()
        values = self.mean + self.deviation * values
        wanted = tuple(str(label) for label in corpus.column("label"))
        return Predictions(said=tuple(f"{value:.4g}" for value in values), wanted=wanted, values=values)

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Pearson's and Spearman's correlation and r2, beside those of training's mean."""
        guess = float(label_numbers(train).mean())
        return number_scores(label_numbers(corpus), predictions.values, guess, blocks_of(corpus))
