"""Machine translation: the decoder predicts the translation, the encoder reads the source."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Probability, UserError

from ._batch import Batch, Corrupted
from ._encoder_decoder import target_loss
from ._example import Example
from ._loss import LossTerm
from ._metric import BLEU, LOSS, Metric
from ._noise import Noise
from ._objective import AbstractObjective, Family, Writes
from ._token_dropout import drop_tokens


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Translation(AbstractObjective):
    """Cross-entropy over the target's tokens, its end included, given the source."""

    name: ClassVar[str] = "translation"
    layout: ClassVar[Layout] = "encoder-decoder"
    family: ClassVar[Family] = "translate"
    needs_translation: ClassVar[bool] = True
    writes: ClassVar[Writes] = "translation"
    term_weights: ClassVar[dict[str, float]] = {"translation": 1.0}
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS, BLEU)

    token_dropout: Probability = 0.0  # probability that a *source* token is replaced by a random one
    decoder_dropout: Probability = field(default=0.0, metadata=LATER)  # that the decoder does not see a token

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The decoder reads [CLS] y and predicts y [SEP].

        `decoder_dropout` replaces each token of y in the decoder's input, but not in its target, by [CLS] with that
        probability: the decoder sees less of its own output and must rely on the encoder (word dropout, [@bowman2016]).
        """
        tokens, target = example.text, example.translation
        if target is None:
            raise UserError("translation needs a parallel corpus. Got sentences without translations.")
        selected = np.zeros(len(tokens), dtype=bool)
        if self.token_dropout:
            tokens, selected = drop_tokens(tokens, self.token_dropout, generator, vocabulary)
        reads = target[:-1]
        if self.decoder_dropout:
            reads = np.where(generator.random(len(reads)) < self.decoder_dropout, target[0], reads)
        arrays = {"input_ids": tokens, "labels": target[1:], "decoder_input_ids": reads}
        return Corrupted(arrays=arrays, selected=selected)

    def for_evaluation(self) -> "Translation":
        """The same objective on clean inputs."""
        return replace(self, token_dropout=0.0, decoder_dropout=0.0)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the translation's tokens."""
        return target_loss(self.name, module, batch, label_smoothing)
