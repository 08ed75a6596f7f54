"""Targets of a recording: terms of losses on sets of sentences, with each set in parts."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import Anatomy
from infoflow.training import Step

from ._batch_set import of_step
from ._evaluation_set import EvaluationSet
from ._gradient import FlatParameters, pass_gradients, pass_losses
from ._pass import ModelPass
from ._passes import passes_of, plain
from ._sharing import added_up, rank

Channel = tuple[int, str, int]  # set, term of the loss, part


class Targets:
    """Losses and gradients at a module's current weights, as shares of the mean over the whole set.

    A target is a term of the loss on a set; a channel is a target on one of the set's parts. Under `torchrun` every
    process takes its share of the examples, and losses and gradients are summed over processes.
    """

    def __init__(self, sets: Sequence[EvaluationSet]) -> None:
        if not sets or len({one.name for one in sets}) < len(sets) or len({len(one.parts) for one in sets}) > 1:
            raise UserError("A recording needs sets of different names and equal numbers of parts.")
        self.sets = tuple(sets)
        self.rows = [(index, term) for index, one in enumerate(sets) for term in one.objective.term_weights]
        self.parts = len(sets[0].parts)
        self.used: set[int] = set()  # numbers of the parameters with a gradient
        self._passes: list[tuple[tuple[ModelPass, ...], ...]] = []  # by set and part

    def prepare(self, module: PreTrainedModel, flat: FlatParameters, anatomy: Anatomy) -> None:
        """Prepare the sentences of the sets as input for the module."""
        self._flat = flat
        self._passes = [passes_of(module, flat, anatomy, one) for one in self.sets]

    def move(self, step: Step) -> np.ndarray:
        """Replace sets that are batches by this update's; returns the rows of such sets."""
        self.sets = tuple(of_step(one, step) if one.moving else one for one in self.sets)
        for index, one in enumerate(self.sets):
            if one.moving:
                self._passes[index] = (plain([batch.to(step.module.device) for batch in step.batches]),)
        return np.array([self.sets[index].moving for index, _ in self.rows])

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """(set, part), in execution order."""
        return [(index, part) for index in range(len(self.sets)) for part in range(self.parts)]

    def channels(self, index: int, part: int) -> list[Channel]:
        return [(index, term, part) for term in self.sets[index].objective.term_weights]

    def row(self, channel: Channel) -> int:
        """Index of the channel's target."""
        return self.rows.index(channel[:2])

    def losses(self, module: PreTrainedModel, index: int, part: int) -> dict[str, float]:
        """Loss of each term on a part."""
        return self._divided(index, pass_losses(module, self.sets[index].objective, self._passes[index][part]))

    def gradients(
        self, module: PreTrainedModel, index: int, part: int
    ) -> tuple[dict[str, float], dict[Channel, Tensor]]:
        """Loss and gradient of each term on a part."""
        one, passes = self.sets[index], self._passes[index][part]
        losses, gradients = pass_gradients(module, self._flat, one.objective, passes, self.used)
        for term, gradient in gradients.items():
            gradient.div_(max(one.totals[term], 1))
            if rank()[1] > 1:
                torch.distributed.all_reduce(gradient)
        named = {(index, term, part): gradient for term, gradient in gradients.items()}
        return self._divided(index, losses), named

    def slopes(self, gradients: Mapping[Channel, Tensor], delta: Tensor) -> np.ndarray:
        """Sum over parts of each target's gradient times Δ."""
        slopes = np.zeros(len(self.rows))
        for channel, gradient in gradients.items():
            slopes[self.row(channel)] += float(torch.dot(gradient, delta))
        return slopes

    def _divided(self, index: int, losses: dict[str, float]) -> dict[str, float]:
        totals = self.sets[index].totals
        return {term: loss / max(totals[term], 1) for term, loss in added_up(losses).items()}
