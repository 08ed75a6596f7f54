"""Loss on held-out sentences, with noise frozen per sentence."""

import math
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel

from infoflow.models import evaluating
from infoflow.objectives import AbstractObjective

from ._config import Precision
from ._data import TrainingData
from ._precision import mixed_precision
from ._sampler import micro_batches


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Mean loss of each term on held-out sentences."""

    losses: dict[str, float]  # nats per supervised item
    counts: dict[str, int]
    loss: float  # weighted sum of the terms: what training minimises, without label smoothing

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))


def evaluate(
    objective: AbstractObjective,
    module: PreTrainedModel,
    data: TrainingData,
    seed: int = 0,
    micro_tokens: int = 4096,
    precision: Precision = "fp32",
) -> Evaluation:
    """The loss of `module` on `data`, without dropout of units or tokens.

    A sentence's noise, for its corruption and for a stochastic loss, is keyed only by (seed, its id): it is the same at
    every evaluation. `module` keeps its mode; random states are not touched.
    """
    objective = objective.for_evaluation()
    rows = np.arange(len(data.source.lengths))
    targets = np.asarray(data.target.lengths) if objective.needs_translation and data.target is not None else None
    pieces = micro_batches(rows, np.asarray(data.source.lengths), targets, micro_tokens)
    totals = dict.fromkeys(objective.term_weights, 0.0)
    counts = dict.fromkeys(objective.term_weights, 0)
    device = next(module.parameters()).device
    with evaluating(module), mixed_precision(module, precision, device):
        for piece in pieces:
            batch = data.batch(objective, piece, ("evaluation-noise", seed), 0).to(device)
            for name, term in objective.loss(module, batch, batch.noise).items():
                totals[name] += float(term.total)
                counts[name] += term.count
    means = {name: totals[name] / max(counts[name], 1) for name in totals}
    return Evaluation(losses=means, counts=counts, loss=objective.weighted(means))
