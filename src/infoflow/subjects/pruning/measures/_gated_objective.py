"""A training objective with gates on the heads and a penalty for open gates."""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.objectives import (
    AbstractObjective,
    Batch,
    Corrupted,
    Example,
    LossTerm,
    Noise,
    Vocabulary,
)

from ._head_gates import ATTRIBUTE, AbstractHeadGates

TERM = "gates"


@dataclass(frozen=True, kw_only=True)
class GatedObjective(AbstractObjective):
    """The model's training objective, with new gates for each batch, plus `weight` times their penalty.

    Use while gates are attached to the module (`attached`). Held-out sentences are scored by the plain objective with
    evaluation gates.
    """

    name: ClassVar[str] = "gated"
    layout: ClassVar[Layout] = "encoder"
    term_weights: ClassVar[dict[str, float]] = {}

    inner: InitVar[AbstractObjective]
    weight: float  # weight of the gates' penalty
    settings: str  # of the gates and the inner objective, part of a run's key

    def __post_init__(self, inner: AbstractObjective) -> None:
        facts: dict[str, Any] = {
            "_inner": inner,
            "name": inner.name,
            "layout": inner.layout,
            "needs_translation": inner.needs_translation,
            "draws": inner.draws,
            "reads": inner.reads,
            "writes": inner.writes,
            "term_weights": {**inner.term_weights, TERM: self.weight},
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @property
    def plain(self) -> AbstractObjective:
        """The objective without gates."""
        return getattr(self, "_inner")  # noqa: B009 (set past the frozen dataclass)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        return self.plain.corrupt(example, generator, vocabulary)

    def noise_epoch(self, epoch: int) -> int:
        return self.plain.noise_epoch(epoch)

    def for_evaluation(self) -> AbstractObjective:
        return self.plain.for_evaluation()

    def collate(
        self,
        examples: Sequence[Corrupted],
        vocabulary: Vocabulary,
        target: Vocabulary | None = None,
        noise: Noise | None = None,
    ) -> Batch:
        return self.plain.collate(examples, vocabulary, target, noise)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        return self.plain.exported(module)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.plain.counts(batch), TERM: 1}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        gates = getattr(module, ATTRIBUTE)
        assert isinstance(gates, AbstractHeadGates)
        gates.draw()
        terms = self.plain.loss(module, batch, noise, label_smoothing)
        return {**terms, TERM: LossTerm(total=gates.penalty(), count=1)}
