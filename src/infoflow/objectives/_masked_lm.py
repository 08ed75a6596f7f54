"""Masked language modelling: some tokens are hidden or replaced, and predicted from both sides.

Five published selection procedures differ in details that affect the rate, so each is reproduced exactly:

| selection          | how many of T candidates                              | random ids from       |
|--------------------|-------------------------------------------------------|-----------------------|
| `dynamic` (RoBERTa) | `int(0.15 T + U)`, without replacement, anew per epoch | non-special ids      |
| `static` (BERT)    | `min(20, max(1, round(0.15 len)))`, 10 fixed copies    | the full vocabulary   |
| `bernoulli` (Hugging Face's collator) | each with probability 0.15         | the full vocabulary   |
| `whole-word` (BERT's second release) | as `static`, whole words in random order, anew per epoch | non-special ids |
| `n-gram` (ALBERT)  | likewise, n-grams of whole words, P(n) ∝ 1/n, n ≤ 3    | non-special ids       |
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Count, Probability

from ._batch import UNSUPERVISED, Batch, Corrupted
from ._choosing import bert_budget, n_grams, words_of
from ._example import Example
from ._loss import LossTerm, supervised_cross_entropy
from ._masking import hide
from ._noise import Noise
from ._objective import AbstractObjective, Family

_LONGEST_NGRAM = 3  # words; ALBERT's
Selection = Literal["dynamic", "static", "bernoulli", "whole-word", "n-gram"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLM(AbstractObjective):
    """Predict selected tokens; 80 % of them become [MASK], 10 % a random token, 10 % stay."""

    name: ClassVar[str] = "masked-lm"
    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "fill in"
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0}

    selection: Selection = "dynamic"
    rate: Probability = 0.15  # share of candidates that are predicted
    mask_share: Probability = 0.8  # of the selected
    random_share: Probability = 0.1  # of the selected; the rest is unchanged
    specials: bool = False  # fairseq parity of `dynamic`: [CLS] and [SEP] are candidates too
    copies: Count = 10  # for `static`: number of different masks of a sentence, used in turn (BERT's dupe_factor)
    max_predictions: Count = 20  # for `static`, `whole-word` and `n-gram`, per sentence

    @property
    def predicted_share(self) -> float:
        """The rate, relative to the candidates."""
        return self.rate

    @property
    def needs_mask(self) -> bool:
        return True

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Select positions, then hide, replace or keep each; labels only at selected positions."""
        tokens = example.text
        positions = self._select(tokens, generator, vocabulary)
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        labels[positions] = tokens[positions]
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        inputs = hide(
            tokens,
            positions,
            generator,
            vocabulary,
            self.name,
            mask_share=self.mask_share,
            random_share=self.random_share,
            random_ids="all" if self.selection in ("static", "bernoulli") else "ordinary",
        )
        return Corrupted(arrays={"input_ids": inputs, "labels": labels}, selected=selected)

    def noise_epoch(self, epoch: int) -> int:
        """Static masks have `copies` versions, used in turn."""
        return epoch % self.copies if self.selection == "static" else epoch

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the selected tokens."""
        hidden = module.base_model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        return {self.name: supervised_cross_entropy(module, hidden, batch.labels, label_smoothing)}

    def _select(self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary) -> np.ndarray:
        if self.selection in ("whole-word", "n-gram"):
            words = words_of(tokens, vocabulary)
            budget = bert_budget(len(tokens), len(words.places), self.rate, self.max_predictions)
            return n_grams(words, budget, _LONGEST_NGRAM if self.selection == "n-gram" else 1, generator)
        include_specials = self.specials and self.selection == "dynamic"
        candidates = np.arange(len(tokens)) if include_specials else (~vocabulary.is_special[tokens]).nonzero()[0]
        draws = generator.random(len(candidates) + 1)
        if self.selection == "bernoulli":
            return candidates[draws[1:] < self.rate]
        if self.selection == "static":
            count = bert_budget(len(tokens), len(candidates), self.rate, self.max_predictions)
        else:
            count = int(self.rate * len(candidates) + draws[0])  # stochastic rounding: right on average
        return candidates[np.argsort(draws[1:])[:count]]
