"""Longformer: every token attends to a window of neighbours; the first token attends to all, and all to it."""

from typing import Any, ClassVar, final

import torch
from transformers import (
    BertForMaskedLM,
    LongformerConfig,
    LongformerForMaskedLM,
    LongformerForTokenClassification,
    PreTrainedModel,
)

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError
from infoflow.models import FIRST_IS_GLOBAL, compute_densely

from ._bert import Bert
from ._config import ModelConfig, shape_of
from ._encoders import AbstractEncoderFamily

_SHARE = 8  # of the positions: 512 of the published model's 4096
_SMALLEST = 4  # tokens: below that, Hugging Face's own code computes no bands
# BERT's parameters with different names here.
_IN_BERT = (
    ("longformer.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.bias", "cls.predictions.bias"),
)


@final
class Longformer(AbstractEncoderFamily):
    """Hugging Face's Longformer ([@beltagy2020longformer]) with BERT's values.

    A window of w tokens (w / 2 on either side), w an eighth of `model.positions`, in every layer. The first token is
    global: it has its own queries, keys and values, initialised as copies of the others.
    """

    name: ClassVar[str] = "longformer"
    base: ClassVar[str] = "longformer"

    def check(self, config: ModelConfig) -> None:
        """See `AbstractFamily.check`: its window must fit the positions."""
        super().check(config)
        window_of(config)

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.masked_lm`.

        Raises:
            UserError: The window is larger than the positions.
        """
        # First, so that its values are drawn as in BERT itself.
        bert = Bert().masked_lm(config, vocabulary, layers)
        model = LongformerForMaskedLM(_longformer_config(config, vocabulary, layers))
        _begin_as(bert, model, _offset(vocabulary))
        compute_densely(model)
        return model

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.detector`."""
        model = LongformerForTokenClassification(_longformer_config(config, vocabulary, layers, num_labels=1))
        compute_densely(model)
        return model

    def encoder_parameters(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> int:
        """Parameters of the matrices, without biases."""
        block = config.block_parameters + 3 * config.width**2
        return layers * block + (vocabulary.size + config.positions) * config.width


def _longformer_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, **head: Any) -> LongformerConfig:
    shape = shape_of(config, vocabulary, layers)
    shape["max_position_embeddings"] = config.positions + _offset(vocabulary)
    entries: dict[str, Any] = {FIRST_IS_GLOBAL: True, **head}
    return LongformerConfig(**shape, attention_window=[window_of(config)] * layers, **entries)


def _offset(vocabulary: Vocabulary) -> int:
    """Number of the first position, counted as in RoBERTa."""
    return vocabulary.pad + 1


def window_of(config: ModelConfig) -> int:
    """Tokens in the window, half of them on either side.

    Raises:
        UserError: It is larger than the positions.
    """
    window = max(_SMALLEST, 2 * (config.positions // (2 * _SHARE)))
    if window > config.positions:
        raise UserError(
            f"The window of longformer must not be larger than model.positions. Got a window of {window} tokens for "
            f"{config.positions} positions. Set model.positions to at least {window}, or leave longformer out."
        )
    return window


def _begin_as(bert: PreTrainedModel, model: PreTrainedModel, offset: int) -> None:
    """Copy BERT's values to every parameter; projections of global tokens get those of the others."""
    assert isinstance(bert, BertForMaskedLM)
    values = dict(bert.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = values[_in_bert(name)]
            if "position_embeddings" in name:
                parameter[offset:] = value
            else:
                parameter.copy_(value)


def _in_bert(name: str) -> str:
    name = name.replace("_global.", ".")
    for ours, theirs in _IN_BERT:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name
