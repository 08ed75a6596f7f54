"""What a method of relevance is asked: one sentence, and the predictions to explain."""

import inspect
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model

from ._predictions import Predictions, seeds


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """One sentence's predictions."""

    model: Model
    predictions: Predictions
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

    def targets(self, logits: Float[Tensor, "token vocabulary"]) -> Int[Tensor, " seed"]:
        """Token whose logit is explained at each position."""
        return seeds(logits, self.predictions.positions, self.target)


def without_cache(model: Model) -> dict[str, bool]:
    """The keyword that keeps a decoder from building a cache, where it has one."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.module.forward).parameters else {}
