"""What a method of relevance is asked: one sentence, and the predictions to explain."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.models import without_cache as no_cache

from ._predictions import SentencePredictions


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """One sentence's predictions."""

    model: Model
    predictions: SentencePredictions
    target: int | None  # token id; None: the top one

    def logits(self, output: object) -> Tensor:
        """Logits of the forward pass: (1 or more, token, vocabulary).

        Raises:
            UserError: The model has no language-model head.
        """
        if self.model.task == "encoder":
            raise UserError(
                f"{self.model.name} has no language-model head, so it predicts nothing that relevance could start "
                "from. Load it with its head, give a gradient method your own number to explain "
                "(output=function of the model's output), or use a forward method: alti or rollout."
            )
        # Models for pretraining predict sentence order too and name their token logits differently.
        return output.logits if getattr(output, "logits", None) is not None else output.prediction_logits  # type: ignore[attr-defined]

    def targets(self, logits: Float[Tensor, "seed vocabulary"]) -> Int[Tensor, " seed"]:
        """Token whose logit is explained, given the logits at each position: the top one, or the one asked for.

        Raises:
            UserError: The vocabulary has no such token.
        """
        if self.target is None:
            return logits.argmax(dim=1)
        if not 0 <= self.target < logits.shape[1]:
            raise UserError(f"target is a token id in 0..{logits.shape[1] - 1}. Got {self.target}.")
        return logits.new_full((len(logits),), self.target, dtype=torch.long)


def without_cache(model: Model) -> dict[str, bool]:
    """The keyword that keeps a decoder from building a cache, where it has one."""
    return no_cache(model.module)
