"""Prefix language modelling with a single stack: bidirectional attention in the prefix, causal attention after it."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary

from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Field
from ._example import Example
from ._loss import LossTerm, supervised_cross_entropy
from ._noise import Noise
from ._objective import AbstractObjective, Family
from ._text_to_text import prefix_length


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixDecoder(AbstractObjective):
    """Predict what follows a prefix of random length; within the prefix every position sees every other.

    The decoder-only form of `prefix-lm` ([@raffel2020exploring]): the same prefix lengths, loss only on the rest.
    """

    name: ClassVar[str] = "prefix-lm-decoder"
    layout: ClassVar[Layout] = "decoder"
    family: ClassVar[Family] = "predict next"
    term_weights: ClassVar[dict[str, float]] = {"prefix-lm-decoder": 1.0}
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "prefix": Field()}

    @property
    def predicted_share(self) -> float:
        """Half of the text on average."""
        return 0.5

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """[CLS] and the prefix have no loss; `prefix` is their length."""
        tokens = example.text
        prefix = 1 + prefix_length(len(tokens) - 2, generator)
        labels = np.append(tokens[1:], UNSUPERVISED)
        labels[: prefix - 1] = UNSUPERVISED
        arrays = {"input_ids": tokens, "labels": labels, "prefix": np.array(prefix)}
        return Corrupted(arrays=arrays, selected=np.zeros(len(tokens), dtype=bool))

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the tokens after the prefix."""
        states = module.base_model(
            input_ids=batch.input_ids,
            attention_mask=prefix_mask(batch["prefix"], batch.input_ids.shape[1]),
            use_cache=False,
        )
        return {self.name: supervised_cross_entropy(module, states.last_hidden_state, batch.labels, label_smoothing)}


def prefix_mask(prefix: Int[Tensor, " batch"], length: int) -> Float[Tensor, "batch 1 length length"]:
    """Additive attention mask: 0 where a key is in the prefix or not after the query, else the lowest float.

    Padding is on the right, after every query that counts. Additive, because transformers' `eager` attention adds a
    Boolean mask of four axes as 0 and 1, and leaks the future.
    """
    places = torch.arange(length, device=prefix.device)
    seen = (places[None, :] <= places[:, None]) | (places[None, None, :] < prefix[:, None, None])
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
