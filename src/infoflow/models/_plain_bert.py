"""BERT whose output matrix reads the top layer directly, without a transform."""

from typing import Any

from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
)

from ._own import OWN


class PlainBertConfig(BertConfig):
    """A BERT configuration with its own name: transformers' BERT would add a transform with random weights."""

    model_type = "infoflow-plain-bert"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class PlainBertModel(BertModel):
    """Its blocks without a head, as an aligned encoder is saved."""

    config_class = PlainBertConfig


class PlainBertForMaskedLM(BertForMaskedLM):
    """A masked LM with logits W h + b of the top layer's states h; W are the embeddings.

    In BERT a dense layer, an activation and a norm come first: a part of the prediction that no layer shows.
    """

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


class PlainBertLMHeadModel(BertLMHeadModel):
    """A causal LM, or the decoder of an encoder-decoder, in the same form."""

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


OWN |= {one.__name__: one for one in (PlainBertForMaskedLM, PlainBertLMHeadModel)}
AutoConfig.register(PlainBertConfig.model_type, PlainBertConfig)
AutoModel.register(PlainBertConfig, PlainBertModel)
AutoModelForMaskedLM.register(PlainBertConfig, PlainBertForMaskedLM)
AutoModelForCausalLM.register(PlainBertConfig, PlainBertLMHeadModel)
