"""Language models that predict the next token: causal, in both directions (as in ELMo), and after a prefix."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability

from ._batch import (
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Field,
    LossTerm,
    Noise,
    Shown,
    supervised_cross_entropy,
    tokens_of,
)
from ._objective import AbstractObjective, Family, drop_tokens
from ._text_to_text import prefix_length


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CausalLM(AbstractObjective):
    """Predict each token from the preceding tokens; the last position has no target."""

    name: ClassVar[str] = "causal-lm"
    layout: ClassVar[Layout] = "decoder"
    family: ClassVar[Family] = "predict next"
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
        # Padding is on the right, so a causal position never sees it, and attention can run without a mask.
        hidden = module.base_model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        return {self.name: supervised_cross_entropy(module, hidden, batch.labels, label_smoothing)}


FORWARD, BACKWARD = "forward", "backward"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class BiLM(AbstractObjective):
    r"""Predict each token from the preceding tokens and, with another stack, from the following ([@peters2018deep]).

    $$ \tfrac12 \overline{-\log p(x_{t+1} \mid x_{\le t})} + \tfrac12 \overline{-\log p(x_{t-1} \mid x_{\ge t})} $$

    The factor ½ is from the released code (bilm-tf); we have not verified that the paper sums the two terms. The two
    directions share embeddings and softmax, and no layer mixes them. Only the loss follows the released recipe. The
    recipe's sampled softmax (8192), Adagrad (0.2), clipping at 10 and the factor 20 on gradients are replaced by the
    settings that all objectives share.

    With two stacks of BERT's blocks, the forward stack, a causal LM, is saved and measured as the model; the backward
    stack is saved separately. ELMo, whose layers have states of both directions, is saved whole. As every text has one
    beginning and one end, both directions have equally many labels with the same frequencies, so one frequency baseline
    serves both.
    """

    name: ClassVar[str] = "bilm"
    layout: ClassVar[Layout] = "bidirectional-pair"
    family: ClassVar[Family] = "predict next"
    term_weights: ClassVar[dict[str, float]] = {FORWARD: 0.5, BACKWARD: 0.5}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        "reversed_ids": Field(pad="source"),  # the text from its end; padding stays on the right
        "reversed_labels": Field(pad=UNSUPERVISED),
    }

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Return the text and its reverse, each with the next tokens as labels."""
        tokens = example.text
        labels = {"labels": _next(tokens), "reversed_labels": _next(tokens[::-1])}
        arrays = {**self.reads_instead(tokens), **labels}
        return Corrupted(arrays=arrays, selected=np.zeros(len(tokens), dtype=bool))

    def reads_instead(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The reversed text, which the backward stack reads."""
        return {"input_ids": inputs, "reversed_ids": inputs[::-1]}

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The forward stack with the head; the backward stack is saved separately.

        ELMo, whose layers have both directions, is saved whole.
        """
        return getattr(module, "forwards", module)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the next tokens and of the previous ones."""
        model: Any = module
        head = self.exported(module)  # both directions share it
        ahead, back = model.both_ways(batch.input_ids, batch["reversed_ids"])
        return {
            FORWARD: supervised_cross_entropy(head, ahead, batch.labels, label_smoothing),
            BACKWARD: supervised_cross_entropy(head, back, batch["reversed_labels"], label_smoothing),
        }

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        ahead, back = batch.input_ids, batch["reversed_ids"]
        return Shown(
            inputs={FORWARD: tokens_of(ahead, names), BACKWARD: tokens_of(back, names)},
            targets={FORWARD: tokens_of(batch.labels, names), BACKWARD: tokens_of(batch["reversed_labels"], names)},
        )


def _next(tokens: np.ndarray) -> np.ndarray:
    return np.append(tokens[1:], UNSUPERVISED)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixDecoder(AbstractObjective):
    """Predict what follows a prefix of random length; within the prefix, every position sees every other one.

    This is the decoder-only form of `prefix-lm` ([@raffel2020exploring]), with the same prefix lengths and a loss only
    on the rest.
    """

    name: ClassVar[str] = "prefix-lm-decoder"
    layout: ClassVar[Layout] = "decoder"
    family: ClassVar[Family] = "predict next"
    term_weights: ClassVar[dict[str, float]] = {"prefix-lm-decoder": 1.0}
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "prefix": Field()}

    @property
    def predicted_share(self) -> float:
        """Half of the text, on average."""
        return 0.5

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Leave [CLS] and a random prefix out of the loss; `prefix` is their common length."""
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

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        plain = AbstractObjective.shown(self, batch, names, target_names)
        places = range(batch.input_ids.shape[1])
        sees = ["prefix" if place < int(batch["prefix"]) else "before" for place in places]
        return replace(plain, inputs={**plain.inputs, "attends to": sees})


def prefix_mask(prefix: Int[Tensor, " batch"], length: int) -> Float[Tensor, "batch 1 length length"]:
    """Additive attention mask: 0 where a key is in the prefix or not after the query, otherwise the lowest float.

    Padding needs no mask, since it is on the right, after every query that counts. The mask is additive because the
    `eager` attention of transformers would add a Boolean 4-D mask as 0 and 1 and leak the future.
    """
    places = torch.arange(length, device=prefix.device)
    seen = (places[None, :] <= places[:, None]) | (places[None, None, :] < prefix[:, None, None])
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
