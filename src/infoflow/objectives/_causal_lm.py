"""Causal language modelling: position t predicts token t+1."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability

from ._batch import UNSUPERVISED, Batch, Corrupted
from ._example import Example
from ._loss import LossTerm, supervised_cross_entropy
from ._noise import Noise
from ._objective import AbstractObjective
from ._token_dropout import drop_tokens


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CausalLM(AbstractObjective):
    """Predict each token from those before it; the last position predicts nothing."""

    name: ClassVar[str] = "causal-lm"
    layout: ClassVar[Layout] = "decoder"
    term_weights: ClassVar[dict[str, float]] = {"causal-lm": 1.0}

    token_dropout: Probability = 0.0  # probability that an *input* token is replaced by a random one; labels stay clean

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Shift the labels by one: `labels[t] = tokens[t + 1]`."""
        tokens = example.text
        labels = np.append(tokens[1:], UNSUPERVISED)
        inputs, selected = tokens, np.zeros(len(tokens), dtype=bool)
        if self.token_dropout:
            inputs, selected = drop_tokens(tokens, self.token_dropout, generator, vocabulary)
        return Corrupted(arrays={"input_ids": inputs, "labels": labels}, selected=selected)

    def for_evaluation(self) -> "CausalLM":
        """The same objective on clean inputs."""
        return replace(self, token_dropout=0.0)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the next tokens."""
        # Padding lies on the right, so a causal position never sees it, and attention runs without a mask.
        hidden = module.base_model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        return {self.name: supervised_cross_entropy(module, hidden, batch.labels, label_smoothing)}
