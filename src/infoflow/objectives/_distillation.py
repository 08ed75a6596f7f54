"""Knowledge distillation as in DistilBERT: a smaller student learns a trained masked LM's output on masked text."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Limits, Name, Probability

from ._batch import UNSUPERVISED, Batch, Corrupted
from ._example import Example
from ._loss import LossTerm, prediction_head, supervised_cross_entropy
from ._masking import hide, text_counts
from ._metric import LOSS, Metric
from ._noise import Noise
from ._objective import AbstractObjective, Family

Temperature = Annotated[float, Limits(above=0, at_most=100)]
_SMOOTHING = 0.7  # exponent of token frequencies: rare tokens are masked more often


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Distillation(AbstractObjective):
    r"""Masked LM loss, the teacher's distribution, and the direction of its last states ([@sanh2019distilbert]).

    $$ 5 \, \tau^2 \, \mathrm{KL}(p^t_\tau \| p^s_\tau) + 2 \, \mathrm{CE} + (1 - \cos(h^s, h^t)) $$

    The means are over tokens that are not padding (KL: over masked ones with `masked_only`). The weights are the
    defaults of the released code; its example for several GPUs gives .33 to each. \(\tau = 2\) is unverified.
    `ceil(.15 · len)` tokens are masked, drawn without replacement by inverse frequency to the power .7. The student has
    every other layer of its teacher's, and begins with their weights; its position embeddings learn too, which the
    released code's do not.
    """

    name: ClassVar[str] = "distillation"
    layout: ClassVar[Layout] = "student-teacher"
    family: ClassVar[Family] = "fill in"
    needs_counts: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (replace(LOSS, name="loss of masked-lm"),)
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 2.0, "teacher": 5.0, "cosine": 1.0}

    teacher: Name = "masked-lm"  # an objective of the plan; its model of the same seed is the teacher
    rate: Probability = 0.15
    temperature: Temperature = 2.0
    masked_only: bool = False  # use the teacher's distribution only at masked tokens

    @property
    def predicted_share(self) -> float:
        return self.rate

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Mask tokens, rare ones more often; 80 % become [MASK], 10 % a random token, 10 % stay."""
        tokens = example.text
        candidates = np.flatnonzero(~vocabulary.is_special[tokens])
        weights = np.maximum(text_counts(vocabulary)[tokens[candidates]], 1.0) ** -_SMOOTHING
        # The largest keys u^(1/w) are a weighted draw without replacement (Efraimidis and Spirakis).
        keys = np.log(generator.random(len(candidates))) / weights
        count = min(int(np.ceil(self.rate * len(tokens))), len(candidates))
        positions = candidates[np.argsort(-keys)[:count]]
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        labels[positions] = tokens[positions]
        shown = hide(tokens, positions, generator, vocabulary, self.name)
        return Corrupted(arrays={"input_ids": shown, "labels": labels}, selected=labels != UNSUPERVISED)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The student; the teacher is saved separately."""
        return module.student  # type: ignore[return-value]

    def counts(self, batch: Batch) -> dict[str, int]:
        compared = batch.supervised_tokens if self.masked_only else batch.source_tokens
        return {"masked-lm": batch.supervised_tokens, "teacher": compared, "cosine": batch.source_tokens}

    def guesses(self, batch: Batch, unigram: np.ndarray) -> dict[str, float]:
        """Token frequencies for the tokens. The teacher's terms have no baseline without it: NaN."""
        labels = batch.labels[batch.labels != UNSUPERVISED].cpu().numpy()
        return {"masked-lm": float(unigram[labels].sum()), "teacher": float("nan"), "cosine": float("nan")}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the masked tokens; divergence from the teacher, times τ²; one minus the cosine of states."""
        model: Any = module
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        hidden = model.student.base_model(**inputs).last_hidden_state
        with torch.no_grad():
            taught = model.teacher.eval().base_model(**inputs).last_hidden_state
        real = batch.real
        compared = batch.labels != UNSUPERVISED if self.masked_only else real
        with torch.no_grad():
            wanted = self._log_probs(model.teacher, taught[compared])
        said = self._log_probs(model.student, hidden[compared])
        divergence = F.kl_div(said, wanted, reduction="sum", log_target=True) * self.temperature**2
        apart = 1 - F.cosine_similarity(hidden[real].float(), taught[real].float(), dim=-1)
        return {
            "masked-lm": supervised_cross_entropy(model.student, hidden, batch.labels, label_smoothing),
            "teacher": LossTerm(total=divergence, count=int(compared.sum())),
            "cosine": LossTerm(total=apart.sum(), count=int(real.sum())),
        }

    def _log_probs(self, module: nn.Module, states: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        return (prediction_head(module)(states).float() / self.temperature).log_softmax(dim=-1)
