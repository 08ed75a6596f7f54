"""BERT whose top layer is read by the output matrix itself: no transform stands between them."""

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
    """A BERT's configuration under a name of its own: transformers' BERT would add a transform, with random weights."""

    model_type = "infoflow-plain-bert"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class PlainBertModel(BertModel):
    """Its blocks alone, as an aligned encoder is saved."""

    config_class = PlainBertConfig


class PlainBertForMaskedLM(BertForMaskedLM):
    """A masked LM with logits W h + b of the top layer's states h; W are the embeddings.

    In BERT a dense layer, an activation and a norm come before: a part of the prediction that no layer shows.
    """

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


class PlainBertLMHeadModel(BertLMHeadModel):
    """A causal LM, or the decoder beside an encoder, likewise."""

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


OWN |= {one.__name__: one for one in (PlainBertForMaskedLM, PlainBertLMHeadModel)}
AutoConfig.register(PlainBertConfig.model_type, PlainBertConfig)
AutoModel.register(PlainBertConfig, PlainBertModel)
AutoModelForMaskedLM.register(PlainBertConfig, PlainBertForMaskedLM)
AutoModelForCausalLM.register(PlainBertConfig, PlainBertLMHeadModel)
