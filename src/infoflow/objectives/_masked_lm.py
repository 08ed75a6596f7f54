"""Masked language modelling: some tokens are hidden or swapped, and predicted from both sides.

Three published ways to choose them differ in small print that moves the rate, so each is kept exactly:

| selection          | how many of T candidates                              | random ids from       |
|--------------------|-------------------------------------------------------|-----------------------|
| `dynamic` (RoBERTa) | `int(0.15 T + U)`, without replacement, anew per epoch | non-special ids      |
| `static` (BERT)    | `min(20, max(1, round(0.15 len)))`, 10 fixed copies    | the full vocabulary   |
| `bernoulli` (Hugging Face's collator) | each with probability 0.15         | the full vocabulary   |
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._batch import UNSUPERVISED, Batch, Corrupted
from ._example import Example
from ._loss import LossTerm, supervised_cross_entropy
from ._noise import Noise
from ._objective import AbstractObjective, Family

Selection = Literal["dynamic", "static", "bernoulli"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLM(AbstractObjective):
    """Predict selected tokens; of these 80 % become [MASK], 10 % a random token, 10 % stay."""

    name: ClassVar[str] = "masked-lm"
    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "fill in"
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0}

    selection: Selection = "dynamic"
    rate: float = 0.15  # share of candidates that are predicted
    mask_share: float = 0.8  # of the selected
    random_share: float = 0.1  # of the selected; the rest stays as it was
    specials: bool = False  # fairseq parity of `dynamic`: [CLS] and [SEP] are candidates too
    copies: int = 10  # of `static`: different masks of a sentence, used in turn (BERT's dupe_factor)
    max_predictions: int = 20  # of `static`, per sentence

    @property
    def predicted_share(self) -> float:
        """The rate, of the candidates."""
        return self.rate

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Select positions, then hide, swap or keep each; labels only at selected positions."""
        tokens = example.text
        positions = self._select(tokens, generator, vocabulary)
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        labels[positions] = tokens[positions]
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        inputs = self._replace(tokens, positions, generator, vocabulary)
        return Corrupted(arrays={"input_ids": inputs, "labels": labels}, selected=selected)

    def noise_epoch(self, epoch: int) -> int:
        """Static masks come in `copies` versions, used in turn."""
        return epoch % self.copies if self.selection == "static" else epoch

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the selected tokens."""
        hidden = module.base_model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        return {self.name: supervised_cross_entropy(module, hidden, batch.labels, label_smoothing)}

    def _select(self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary) -> np.ndarray:
        include_specials = self.specials and self.selection == "dynamic"
        candidates = np.arange(len(tokens)) if include_specials else np.flatnonzero(~vocabulary.is_special[tokens])
        draws = generator.random(len(candidates) + 1)
        if self.selection == "bernoulli":
            return candidates[draws[1:] < self.rate]
        if self.selection == "static":
            count = min(self.max_predictions, max(1, round(self.rate * len(tokens))), len(candidates))
        else:
            count = int(self.rate * len(candidates) + draws[0])  # stochastic rounding: right on average
        return candidates[np.argsort(draws[1:])[:count]]

    def _replace(
        self, tokens: np.ndarray, positions: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> np.ndarray:
        if vocabulary.mask is None:
            raise UserError("masked-lm needs a mask token. Got a tokenizer without one: set its mask_token.")
        fate = generator.random(len(positions))
        masked = fate < self.mask_share
        swapped = ~masked & (fate < self.mask_share + self.random_share)
        inputs = tokens.copy()
        inputs[positions[masked]] = vocabulary.mask
        if swapped.any():
            num_swapped = int(swapped.sum())
            if self.selection == "dynamic":
                drawn = vocabulary.ordinary[generator.integers(len(vocabulary.ordinary), size=num_swapped)]
            else:
                drawn = generator.integers(vocabulary.size, size=num_swapped)
            inputs[positions[swapped]] = drawn
        return inputs
